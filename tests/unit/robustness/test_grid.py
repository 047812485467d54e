"""The grid's own logic: what is read, in which order it is run, and that what breaks does not stop the rest."""

from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from finetuning_helpers import make_rows, write_jsonl
from tqdm.auto import tqdm

from sharedqkv.robustness import grid
from sharedqkv.robustness.conditions import CLEAN, Condition, Examples
from sharedqkv.robustness.grid import GridOutcome, Plan, run_grid
from sharedqkv.tasks.registry import get_task

SST2 = get_task("sst2")
EXAMPLES = Examples(["a text"], {})


class FakeModel:
    """Is tried at once; `finished_under` are the names of conditions."""

    def __init__(self, name="m", finished_under=()):
        self.cell = SimpleNamespace(run=name, seed=0)
        self.finished_under = finished_under
        self.predictor = SimpleNamespace(model=None)

    def finished(self, condition, loaded):
        return condition.name in self.finished_under

    def unload(self):
        pass


class FakeWorkers:
    """`broken` are numbers of jobs whose predictions cannot be written."""

    def __init__(self, desk, broken=()):
        self.broken = broken
        self.kept = []

    def prepare(self, parts):
        return (SimpleNamespace(sealed=part) for part in parts)

    def keep(self, number, model_number, sealed, outputs):
        self.kept.append((number, model_number, sealed, outputs))
        done = Future()
        if number in self.broken:
            done.set_exception(ValueError("no score"))
        else:
            done.set_result(None)
        return done


@pytest.fixture
def workers(monkeypatch):
    made = FakeWorkers(None)
    monkeypatch.setattr(grid, "Workers", lambda desk: nullcontext(made))
    monkeypatch.setattr(grid, "_outputs", lambda model, condition, parts: (model.cell.run, condition.name))
    return made


def run_group(models, names, severities=(1, 5)):
    conditions = [Condition(name, 0, severities if Condition(name).is_noise else (0,)) for name in names]
    outcome = GridOutcome()
    with tqdm(disable=True) as bar:
        grid._run_group(SST2, models, dict.fromkeys(conditions, EXAMPLES), outcome, bar)
    return outcome


def test_noise_on_text_waits_for_the_rest(workers):
    names = [CLEAN, "keyboard", "gaussian", "swap", "imdb"]
    assert run_group([FakeModel()], names).ran == 5
    assert [outputs[1] for *_, outputs in workers.kept] == [CLEAN, "gaussian", "imdb", "keyboard", "swap"]


def test_models_share_inputs_of_all_severities(workers):
    run_group([FakeModel("a"), FakeModel("b")], [CLEAN, "keyboard"])
    assert workers.kept == [
        (0, 0, [(0, 0)], ("a", CLEAN)),
        (0, 1, [(0, 0)], ("b", CLEAN)),
        (1, 0, [(1, 1), (1, 5)], ("a", "keyboard")),
        (1, 1, [(1, 1), (1, 5)], ("b", "keyboard")),
    ]


def test_with_noise_in_the_model_all_severities_have_the_same_inputs(workers):
    run_group([FakeModel()], ["gaussian", "keyboard"])
    assert [sealed for _, _, sealed, _ in workers.kept] == [[(0, 0), (0, 0)], [(1, 1), (1, 5)]]


def test_what_is_finished_is_skipped(workers):
    models = [FakeModel("a", [CLEAN, "keyboard"]), FakeModel("b", ["keyboard"])]
    outcome = run_group(models, [CLEAN, "keyboard", "swap"])
    assert (outcome.ran, outcome.skipped) == (3, 3)
    assert [outputs for *_, outputs in workers.kept] == [("b", CLEAN), ("a", "swap"), ("b", "swap")]


def test_a_model_that_breaks_does_not_stop_the_others(workers, monkeypatch):
    def outputs(model, condition, parts):
        if (model.cell.run, condition.name) == ("a", "swap"):
            raise RuntimeError("out of memory")
        return model.cell.run, condition.name

    monkeypatch.setattr(grid, "_outputs", outputs)
    outcome = run_group([FakeModel("a"), FakeModel("b")], [CLEAN, "swap", "drop"])
    assert outcome.ran == 5
    [(name, error)] = outcome.broken.items()
    assert name == "sst2, swap, noise seed 0"
    assert error.startswith("a, ")
    assert error.endswith(": out of memory")


def test_a_model_that_cannot_be_loaded_is_told_when_it_is_tried(workers, monkeypatch):
    class Damaged:
        @property
        def model(self):
            raise RuntimeError("damaged weights")

    model = FakeModel()
    model.predictor = Damaged()
    monkeypatch.setattr(grid, "_outputs", lambda model, condition, parts: model.predictor.model)
    outcome = run_group([model], [CLEAN])
    assert outcome.ran == 0
    assert "damaged weights" in outcome.broken["sst2, clean"]


def test_predictions_that_cannot_be_kept_are_told_and_not_counted(workers):
    workers.broken = [1]
    outcome = run_group([FakeModel()], [CLEAN, "swap", "drop"])
    assert outcome.ran == 2
    assert list(outcome.broken) == ["sst2, swap, noise seed 0"]


def test_few_predictions_wait_to_be_kept(workers, monkeypatch):
    unkept = []

    class Slow(Future):
        def result(self, timeout=None):
            unkept.remove(self)

    def keep(*_):
        unkept.append(Slow())
        assert len(unkept) <= 3
        return unkept[-1]

    monkeypatch.setattr(grid, "_UNKEPT", 2)
    monkeypatch.setattr(workers, "keep", keep)
    assert run_group([FakeModel()], [CLEAN, "swap", "drop", "ocr", "casing"]).ran == 5
    assert unkept == []


def test_models_are_taken_in_groups(monkeypatch):
    monkeypatch.setattr(grid, "_MODELS_AT_ONCE", 2)
    assert list(grid._groups(["a", "b", "c"])) == [["a", "b"], ["c"]]


@pytest.fixture
def data(tmp_path):
    write_jsonl(tmp_path / "sst2" / "validation.jsonl", make_rows("sst2", 6))
    write_jsonl(tmp_path / "domains" / "imdb" / "test.jsonl", make_rows("sst2", 4))
    return tmp_path


def test_examples_are_read_once_for_all_noises(data):
    conditions = [Condition(name) for name in (CLEAN, "keyboard", "gaussian", "imdb")]
    loaded = grid._load(SST2, conditions, data, None, GridOutcome())
    assert [len(loaded[condition].examples) for condition in conditions] == [6, 6, 6, 4]
    assert loaded[conditions[0]] is loaded[conditions[1]] is loaded[conditions[2]]


def test_a_domain_that_cannot_be_read_is_broken_and_the_rest_is_there(data):
    conditions, outcome = [Condition(name) for name in (CLEAN, "yelp", "imdb")], GridOutcome()
    loaded = grid._load(SST2, conditions, data, None, outcome)
    assert [condition.name for condition in loaded] == [CLEAN, "imdb"]
    assert "no split test of yelp" in outcome.broken["sst2, yelp"]


def test_without_the_tasks_own_set_nothing_is_tried(tmp_path):
    with pytest.raises(OSError, match="validation of sst2"):
        grid._load(SST2, [Condition(CLEAN)], tmp_path, None, GridOutcome())


def test_domains_that_the_hub_does_not_have_are_left_out_where_no_folder_is_given(workers, monkeypatch):
    asked = []

    def from_hub(condition, task, data, limit):
        assert data is None
        asked.append(condition.name)
        return EXAMPLES

    monkeypatch.setattr(grid, "load_examples", from_hub)
    monkeypatch.setattr(grid, "models_of", lambda runs, tasks: {"sst2": [FakeModel()]})
    plan = Plan(noises=[], severities=(1,), seeds=(0,), domains=["imdb", "reviews_books", "imdb_contrast"])
    outcome = run_grid(["run"], plan, data=None)
    assert asked == [CLEAN, "imdb"]
    assert outcome.ran == 2
    assert outcome.broken == {}
    assert set(outcome.left_out) == {"sst2, reviews_books", "sst2, imdb_contrast"}
    assert all("the hub has no copy" in reason and "folder" in reason for reason in outcome.left_out.values())
