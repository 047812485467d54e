"""What is timed can be taken out; tables and figures know their files."""

from sharedqkv.evidence.report.document import Cell, Table, file_stem, mark_timed, records_of, strip_timed


def test_only_what_is_timed_is_stripped():
    markup = f"a {mark_timed('3 ms')} b {mark_timed('two' + chr(10) + 'lines')} c"
    assert "3 ms" in markup
    assert strip_timed(markup) == "a  b  c"


def test_records_are_the_cells_unless_given():
    rows = [[Cell("shared"), Cell("84.1 ± 0.2", 0.841)]]
    table = Table("scores", "", ("model", "score"), rows, footer=[[Cell("chance"), Cell("–")]])
    assert records_of(table) == [{"model": "shared", "score": 0.841}, {"model": "chance", "score": "–"}]
    given = Table("scores", "", ("model", "score"), rows, records=[{"model": "shared", "std": 0.002}])
    assert records_of(given) == [{"model": "shared", "std": 0.002}]


def test_timed_files_are_named_so():
    assert file_stem(Table("speed", "", ("model",), [], timed=True)) == "timed_speed"
    assert file_stem(Table("size", "", ("model",), [])) == "size"
