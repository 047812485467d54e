"""Order, settings of a search run, wrong plans."""

import dataclasses
import json
from pathlib import Path

import pytest

from sharedqkv.study.sittings import Cell, Records, load_plan
from sharedqkv.training.schedule import rate_factor

EVIDENCE = Path(__file__).parents[4] / "benchmarks" / "evidence"


def test_a_search_comes_before_the_first_run_and_nothing_comes_twice(plan):
    assert [plan.name(cell) for cell in plan.cells] == [
        "search/standard-rotary/0.001",
        "search/shared-rotary/0.001",
        "search/standard-rotary/0.002",
        "search/shared-rotary/0.002",
        "pretrain/standard-rotary/0",
        "pretrain/shared-rotary/0",
        "pretrain/shared-rotary/1",
        "pretrain/shared-absolute/1",
    ]


def test_one_rate_needs_no_search(plan, tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(file.read_text().replace("[1.0e-3, 2.0e-3], max", "[2.0e-3], max"))
    screening = load_plan(file)
    assert [cell.stage for cell in screening.cells] == ["pretrain"] * 4
    recipe = Records(screening, tmp_path / "records").recipe(screening.cells[0], Path("c"), Path("r"))
    assert recipe.learning_rate == 0.002
    assert recipe.schedule != "constant"
    assert recipe.max_tokens == screening.study.pretrain["max_tokens"]


def test_a_search_run_is_the_beginning_of_the_whole_run(plan):
    whole = plan.recipe(Cell("shared", "rotary"), 1e-3, Path("c"), Path("r"))
    part = plan.recipe(Cell("shared", "rotary", tried_rate=1e-3), 1e-3, Path("c"), Path("r"))
    for tokens in (100, 399, 401, 999):
        rates = [
            rate_factor(tokens / recipe.max_tokens, recipe.schedule, recipe.warmup, recipe.decay)
            for recipe in (whole, part)
        ]
        assert rates[0] == pytest.approx(rates[1])
    different = {key for key, value in whole.to_dict().items() if part.to_dict()[key] != value}
    assert different == {"max_tokens", "warmup", "schedule"}


def test_checks_come_where_the_order_has_them(plan, plan_with_checks):
    assert plan_with_checks.cells[: len(plan.cells)] == plan.cells
    assert [plan_with_checks.name(cell) for cell in plan_with_checks.cells[len(plan.cells) :]] == [
        "checks/standard-rotary/0-rate-0.001",
        "checks/standard-rotary/0-rate-0.002",
        "checks/standard-rotary/0-tokens-2000",
        "checks/standard-rotary/0-tokens-3000",
    ]


@pytest.mark.parametrize(
    ("check", "rate", "deviation"),
    [({"checked_rate": 1e-3}, 1e-3, {"learning_rate": 1e-3}), ({"checked_tokens": 3000}, 2e-3, {"max_tokens": 3000})],
)
def test_a_check_is_a_whole_run_but_for_one_thing(plan, check, rate, deviation):
    whole = plan.recipe(Cell("shared", "rotary"), 2e-3, Path("c"), Path("r")).to_dict()
    checked = plan.recipe(Cell("shared", "rotary", **check), rate, Path("c"), Path("r")).to_dict()
    assert {key: value for key, value in checked.items() if whole[key] != value} == deviation


def test_a_task_may_have_settings_of_its_own(plan_with_tasks):
    tasks = plan_with_tasks.tasks
    assert (tasks["acceptability"].epochs, tasks["sst2"].epochs) == (4, 2)
    assert (len(tasks["acceptability"].candidates()), len(tasks["sst2"].candidates())) == (2, 1)
    assert plan_with_tasks.goes_on_to_tasks(Cell("shared", "rotary"))
    for other in ({"tried_rate": 1e-3}, {"checked_rate": 1e-3}, {"checked_tokens": 3000}):
        assert not plan_with_tasks.goes_on_to_tasks(Cell("shared", "rotary", **other))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[shared]", "[narrow]", r"narrow \(rotary\) is not in the study, which has standard"),
        ("[1.0e-3, 2.0e-3]", "[]", r"search: learning_rates must be positive, .*, not \[\]"),
        ("[1.0e-3, 2.0e-3]", "[0]", r"search: learning_rates must be positive, .*, not \[0.0\]"),
        ("position:", "positon:", "search: unknown key 'positon'. Did you mean 'position'"),
        ("seeds: [1]", "seeds: 1", "order: seeds must be a list, not 1"),
        ("seeds: [1]", "seeds: [1], learning_rates: [0.7]", "order: learning_rates: 0.7 is not one of the search's"),
        ("seeds: [1]", "seeds: [1], learning_rates: [0.7], max_tokens: [9]", "and max_tokens need a group each"),
        ("seeds: [1]", "seeds: [1], max_tokens: [9, 0]", "order: max_tokens must be positive, not 0"),
        ("seeds: [1]", "seeds: [1], max_tokens: [9_000_000]", "max_tokens 9000000 is over the study's"),
        ("seeds: [1]", "seeds: [1], max_tokens: [9]", "1-tokens-9 is checked against pretrain/shared-rotary/1: add"),
        ("study.yaml", "quick", "quick must give its budget as max_tokens"),
        ("{sst2: ", "{rte: ", "tasks: rte is not in the study, which has acceptability, sst2"),
        ("epochs: 2", "epoch: 2", "tasks: sst2: unknown key 'epoch'. Did you mean 'epochs'"),
    ],
)
def test_a_wrong_plan_is_told(plan_with_tasks, tmp_path, old, new, message):
    file = tmp_path / "plan.yaml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        load_plan(file)


@pytest.mark.parametrize("name", ["medium_sittings.yaml", "medium_level2.yaml"])
def test_the_plans_of_the_evidence_are_sound(name):
    plan = load_plan(EVIDENCE / name)
    names = [plan.name(cell) for cell in plan.cells]
    assert len(set(names)) == len(names)
    positions = {entrant.position_embedding_type for entrant in plan.study.entrants}
    for variant in ("shared", "narrow", "symmetric", "grouped:num_query_heads=7"):
        for position in positions:
            seeds = {cell.seed for cell in plan.cells if (cell.variant, cell.position) == (variant, position)}
            assert seeds >= {0, 1, 2}
    assert all(
        plan.study.recipe(entrant, 0, Path("c"), Path("r")).max_tokens >= 100e6 for entrant in plan.study.entrants
    )


def test_the_evidence_is_checked_in_the_order_of_the_plan():
    plan = load_plan(EVIDENCE / "medium_sittings.yaml")
    names = [plan.name(cell) for cell in plan.cells]
    checks = [name for name in names if name.startswith("checks/")]
    models, rates = ("standard", "shared", "narrow", "pairwise"), (0.0005, 0.001, 0.002)
    asked = {f"checks/{model}-rotary/0-rate-{rate}" for model in models for rate in rates}
    asked |= {f"checks/shared-rotary/{seed}-rate-0.002" for seed in (1, 2, 3, 4)}  # it was the better one
    assert set(checks) == asked | {f"checks/standard-rotary/0-tokens-{n}" for n in (80_000_000, 90_000_000)}
    assert names.index("pretrain/grouped-rotary/2") < names.index(checks[0])
    in_order = [
        *("pretrain/standard-absolute/2", "checks/standard-rotary/0-tokens-80000000", "pretrain/tied-rotary/0"),
        *("checks/shared-rotary/0-rate-0.002", "pretrain/grouped-absolute/0", "checks/standard-rotary/0-rate-0.001"),
    ]
    assert sorted(in_order, key=names.index) == in_order


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_level_3_is_bert_base(norm):
    plan = load_plan(EVIDENCE / f"base_{norm}_ln_level3.yaml")
    stages = {cell.stage for cell in plan.cells}
    assert stages == ({"search"} if norm == "post" else {"search", "pretrain"})
    run = {cell.variant for cell in plan.cells}
    assert run == ({"standard"} if norm == "post" else {"standard", "shared", "narrow", "pairwise", "symmetric"})
    assert [entrant.variant for entrant in plan.study.entrants] == [
        *("standard", "shared", "narrow", "pairwise", "symmetric")
    ]
    recipe = plan.recipe(Cell("shared", "absolute"), 1e-4, Path("c"), Path("r"))
    assert (recipe.size, recipe.norm_placement, recipe.position_embedding_type) == ("base", norm, "absolute")
    assert recipe.max_tokens >= 300e6
    assert plan.search.max_tokens >= 60e6, "who sits on the plateau cannot be told before"
    assert len(plan.study.finetune_seeds) == 3
    of_level_2 = load_plan(EVIDENCE / "medium_level2.yaml").tasks
    at_once = {"sst2": 3, "cola": 3, "stsb": 1, "mrpc": 1, "rte": 1}  # larger stacks of `base` would not fit a device
    assert plan.tasks == {
        task: dataclasses.replace(recipe, seeds_at_once=at_once[task]) for task, recipe in of_level_2.items()
    }


def test_levels_1_and_2_pre_train_alike():
    names = ("medium_sittings.yaml", "medium_level2.yaml", "medium_level2_large.yaml")
    first, *others = (load_plan(EVIDENCE / name) for name in names)
    for other in others:
        assert other.search == first.search
        one, two = (plan.recipe(Cell("shared", "rotary", 0), 1e-3, Path("c"), Path("r")) for plan in (first, other))
        assert one == two


def test_a_plan_may_name_its_records_and_what_a_run_takes(plan, tmp_path):
    assert (plan.records, plan.run_s, plan.search_s) == (None, None, None)
    file = tmp_path / "plan.yaml"
    file.write_text(file.read_text() + "records: ../kept\nrun_s: 46\nsearch_s: 17\n")
    named = load_plan(file)
    assert named.records == tmp_path.parent / "kept"
    assert (named.run_s, named.search_s) == (46, 17)
    file.write_text(file.read_text().replace("run_s: 46", "run_s: 0"))
    with pytest.raises(ValueError, match="run_s must be positive, not 0"):
        load_plan(file)


@pytest.mark.parametrize("name", sorted(file.name for file in EVIDENCE.glob("*.yaml") if "order:" in file.read_text()))
@pytest.mark.usefixtures("ties")
def test_plans_of_the_evidence_name_records_of_their_own(name):
    plan = load_plan(EVIDENCE / name)
    assert plan.run_s > (plan.search_s or 0)
    assert (plan.search_s is None) == (plan.search.only_rate is not None)
    study = plan.records / "study.json"
    if study.exists():
        assert json.loads(study.read_text())["name"] == plan.study.name
