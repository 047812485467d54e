"""What a cell is expected to take where nothing like it was run, and where something was."""

import dataclasses

from sharedqkv.study.sittings import Cell, expected_s
from sharedqkv.study.sittings.costs import START_S, guessed_s


def test_a_check_is_guessed_like_a_whole_run_without_tasks(plan, plan_with_tasks):
    assert guessed_s(plan, "checks") == guessed_s(plan, "pretrain")
    assert guessed_s(plan_with_tasks, "checks") == guessed_s(plan, "pretrain")
    assert guessed_s(plan_with_tasks, "pretrain") > guessed_s(plan, "pretrain") > guessed_s(plan, "search") > START_S


def test_its_like_tell_what_it_takes(records):
    cell = Cell("shared", "rotary")
    assert expected_s(records, cell) == guessed_s(records.plan, "pretrain")
    records.folder.mkdir()
    records.note(cell="pretrain/shared-rotary/0", seconds=30.0, device_s=12.0, side_by_side=3, exit_code=0)
    assert expected_s(records, cell) == 12.0


def test_what_is_told_counts_for_whole_runs_only(records):
    assert expected_s(records, Cell("shared", "rotary"), 9.0) == 9.0
    records.plan = dataclasses.replace(records.plan, run_s=7.0)
    assert expected_s(records, Cell("shared", "rotary")) == 7.0
    assert expected_s(records, Cell("shared", "rotary"), 9.0) == 9.0, "the command knows better than the plan"
    searched = Cell("shared", "rotary", tried_rate=1e-3)
    assert expected_s(records, searched, 9.0) == guessed_s(records.plan, "search")
    records.plan = dataclasses.replace(records.plan, search_s=2.0)
    assert expected_s(records, searched, 9.0) == 2.0
