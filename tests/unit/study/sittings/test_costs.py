"""What a cell is expected to take where nothing like it was run, and where something was."""

from sharedqkv.study.sittings import Cell, expected_cost
from sharedqkv.study.sittings.costs import START_S, Cost, guessed_s


def test_a_check_is_guessed_like_a_whole_run_without_tasks(plan, plan_with_tasks):
    assert guessed_s(plan, "checks") == guessed_s(plan, "pretrain")
    assert guessed_s(plan_with_tasks, "checks") == guessed_s(plan, "pretrain")
    assert guessed_s(plan_with_tasks, "pretrain") > guessed_s(plan, "pretrain") > guessed_s(plan, "search")


def test_a_start_is_part_of_the_shortest_time_only(records):
    guess = guessed_s(records.plan, "pretrain")
    assert expected_cost(records, Cell("shared", "rotary")) == Cost(guess, START_S + guess)


def test_its_like_tell_what_it_takes(records):
    records.folder.mkdir()
    for seconds, device_s in ((30.0, 12.0), (40.0, 15.0)):
        told = {"cell": "pretrain/shared-rotary/0", "seconds": seconds, "device_s": device_s}
        records.note(**told, side_by_side=3, exit_code=0)
    assert expected_cost(records, Cell("shared", "rotary")) == Cost(15.0, 30.0)


def test_what_is_told_counts_for_whole_runs_only(records):
    assert expected_cost(records, Cell("shared", "rotary"), 9.0) == Cost(9.0, START_S + 9.0)
    searched = Cell("shared", "rotary", tried_rate=1e-3)
    assert expected_cost(records, searched, 9.0) == expected_cost(records, searched)
