"""A study in short sittings: cells in order of priority, as many as fit, of which records are kept.

For a machine that is there for minutes and from which only megabytes come back. A plan names a study, the order of its
cells and a small search for each variant's learning rate; what lies in the records' folder is not run again, so that
the same command goes on in the next sitting. The records have the form of a study's folder, without weights:
`sharedqkv report` reads them.
"""

from sharedqkv.study.sittings.costs import expected_s
from sharedqkv.study.sittings.plan import Cell, Plan, load_plan
from sharedqkv.study.sittings.records import Records
from sharedqkv.study.sittings.sitting import Sitting

__all__ = ["Cell", "Plan", "Records", "Sitting", "expected_s", "load_plan"]
