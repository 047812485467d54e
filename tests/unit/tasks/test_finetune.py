"""What a grid is asked for, and what is refused before anything is trained."""

import pytest
import torch
from finetuning_helpers import make_model, make_task

from sharedqkv.tasks.finetune import _tenth, finetune, parse_seeds, parse_tasks
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.recipe import FinetuneRecipe


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("cola,sst2", ["cola", "sst2"]),
        ("glue", list(GLUE)),
        ("squad, CoLA", ["squad", "cola"]),
        ("rte,glue", ["rte", *(name for name in GLUE if name != "rte")]),
        ("ax", ["mnli", "ax"]),
    ],
)
def test_tasks(text, tasks):
    assert parse_tasks(text) == tasks


@pytest.mark.parametrize("text", ["colla", "", ",", "cola,snli"])
def test_unknown_tasks_list_the_known(text):
    with pytest.raises(ValueError, match=r"--tasks: unknown .*known: cola, sst2, .*squad_v2, .*span_qa, ax, glue"):
        parse_tasks(text)


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("0,7", [0, 7]), ("7,", [7])])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "many", "1,1", "", ",", "0,-2", "1.5"])
def test_bad_seeds_are_told(text):
    with pytest.raises(ValueError, match="--seeds"):
        parse_seeds(text)


def test_a_tenth_is_held_back_and_always_the_same():
    held_back, rest = _tenth(range(105))
    assert len(held_back) == 10
    assert sorted([*held_back, *rest]) == list(range(105))
    assert _tenth(range(105)) == (held_back, rest)
    with pytest.raises(ValueError, match="at least 10 training examples"):
        _tenth(range(9))


def test_a_model_with_too_few_positions_is_refused_at_once(tmp_path):
    model = make_model(tmp_path / "model", max_position_embeddings=16)
    with pytest.raises(ValueError, match=r"max_length 128 is more than the 16 positions .* --max_length 16"):
        finetune(str(model), {"cola": FinetuneRecipe()}, [0], str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    model = make_model(tmp_path / "model", vocab_size=20)
    with pytest.raises(ValueError, match=r"the tokenizer has .* tokens and the model 20: they do not belong together"):
        finetune(str(model), {"cola": FinetuneRecipe(max_length=24)}, [0], str(tmp_path / "run"))


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="one process and one GPU"):
        finetune(str(make_model(tmp_path / "model")), {}, [0], str(tmp_path / "run"))


def test_several_gpus_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        finetune(str(make_model(tmp_path / "model")), {}, [0], str(tmp_path / "run"))


def test_the_search_takes_the_best_and_trains_all_seeds_with_it(tmp_path):
    model, data = make_model(tmp_path / "model"), make_task(tmp_path / "data", "sst2", train=60)
    recipe = FinetuneRecipe(max_length=24, epochs=12, batch_size=8, search={"learning_rate": [1e-9, 5e-3]})
    outcome = finetune(str(model), {"sst2": recipe}, [3, 4], str(tmp_path / "run"), data=str(data))
    assert [record["recipe"]["learning_rate"] for record in outcome.records] == [5e-3, 5e-3]
    assert [record["train"]["examples"] for record in outcome.records] == [60, 60]
    tried = (tmp_path / "run" / "search" / "sst2.json").read_text()
    assert tried.count('"held_back": 6') == 2
    again = finetune(str(model), {"sst2": recipe}, [3, 4], str(tmp_path / "run"), data=str(data))
    assert again.skipped == 2
    assert (tmp_path / "run" / "search" / "sst2.json").read_text() == tried
