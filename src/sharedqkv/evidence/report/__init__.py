"""The report of a study: a page for people, its Markdown twin, figures and tables as files.

`collect` reads the folder, `measures` does the statistics, `claims`, `words` and `sections/` say it, `page` and
`markdown` give it form. The same results give the same bytes but for what is `timed`; see `document`.
"""

from sharedqkv.evidence.report.document import strip_timed
from sharedqkv.evidence.report.write import build_report

__all__ = ["build_report", "strip_timed"]
