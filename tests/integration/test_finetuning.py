"""Fine-tuning as a user does it: every kind of task, restarts, broken cells, comparison, prediction."""

import io
import json
import re
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from finetuning_helpers import (
    SQUAD_FAST,
    arguments_for,
    make_model,
    make_questions,
    make_rows,
    make_task,
    predictions,
    run_here,
    write_jsonl,
    write_official_tsv,
    write_parquet,
)

import sharedqkv_console
from sharedqkv.tasks import finetune as finetune_module
from sharedqkv.tasks.glue import GLUE


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), "shared")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for task in ("cola", "rte"):
        make_task(folder, task)
    return folder


def table(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "±" in line and "mean" not in line]


def info(run):
    return json.loads((run / "run.json").read_text())


def test_all_of_glue_with_a_submission(model, tmp_path, capsys):
    for task in GLUE:
        make_task(tmp_path / "data", task, train=16, validation=6, test=4)
    code = run_here(model, tmp_path / "data", tmp_path / "run", "--submission", tasks="glue", seeds="1")
    output = capsys.readouterr().out
    assert code == 0
    for name in ("cola", "mnli_matched", "mnli_mismatched", "GLUE average ", "nine-column mean"):
        assert name in output
    with zipfile.ZipFile(tmp_path / "run" / "submission" / "0.zip") as archive:
        assert len(archive.namelist()) == 11
        assert archive.read("AX.tsv").decode().splitlines()[0] == "index\tprediction"
    scores = info(tmp_path / "run")["scores"]
    assert scores["GLUE average"]["seeds"] == [0]
    assert (tmp_path / "run" / "predictions" / "mnli" / "validation_matched" / "0.jsonl").is_file()
    assert (tmp_path / "run" / "predictions" / "ax" / "test" / "0.jsonl").is_file()


def test_the_run_folder(model, data, tmp_path):
    assert run_here(model, data, tmp_path / "run", seeds="0,5") == 0
    found = info(tmp_path / "run")
    assert (found["kind"], found["state"], found["parent"]) == ("finetune", "done", str(model))
    assert found["model"]["variant"] == "shared"
    lines = (tmp_path / "run" / "predictions" / "cola" / "validation" / "5.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    assert list(record) == ["id", "label", "prediction", "scores"]
    assert len(record["scores"]) == 2
    assert len(lines) == 12


def test_same_seed_same_predictions(model, data, tmp_path):
    for name in ("one", "two"):
        run_here(model, data, tmp_path / name, tasks="cola,rte")
    assert predictions(tmp_path / "one") == predictions(tmp_path / "two")
    files = predictions(tmp_path / "one")
    assert files["predictions/cola/validation/0.jsonl"] != files["predictions/cola/validation/1.jsonl"]


def test_interrupted_and_restarted_gives_the_same_table(model, data, tmp_path, monkeypatch, capsys):
    run_here(model, data, tmp_path / "whole", tasks="cola,rte")
    whole = table(capsys.readouterr().out)
    real, calls = finetune_module.train, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(finetune_module, "train", interrupted)
    assert run_here(model, data, tmp_path / "cut", tasks="cola,rte") == 130
    assert info(tmp_path / "cut")["state"] == "stopped"
    assert "the same command goes on" in capsys.readouterr().err
    assert run_here(model, data, tmp_path / "cut", tasks="cola,rte") == 0
    output = capsys.readouterr().out
    assert len(calls) == 3 + 2  # two cells were finished
    assert table(output) == whole
    assert "4 cells" in output
    assert "2 of them finished before" in output
    assert predictions(tmp_path / "cut") == predictions(tmp_path / "whole")


def test_killed_and_restarted_gives_the_same_predictions(model, data, tmp_path):
    options = {"tasks": "cola,rte", "seeds": "3"}
    run_here(model, data, tmp_path / "whole", **options)
    cut = tmp_path / "cut"
    command = [sys.executable, "-m", "sharedqkv_console", *arguments_for(model, data, cut, **options)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(cut.glob("cells/*/*.json"))) < 2 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL  # it was not yet at its end
    (cut / "cells" / "cola" / "0.json").write_text("{ cut off")  # as a crash of the machine may leave it
    assert run_here(model, data, cut, **options) == 0
    assert predictions(cut) == predictions(tmp_path / "whole")
    assert info(cut)["scores"] == info(tmp_path / "whole")["scores"]


def test_changed_settings_or_data_run_a_cell_again(model, tmp_path, capsys):
    data = make_task(tmp_path / "data", "cola")
    run_here(model, data, tmp_path / "run")
    before = predictions(tmp_path / "run")
    capsys.readouterr()
    run_here(model, data, tmp_path / "run", epochs=2)
    captured = capsys.readouterr()
    assert "0 of them finished before" in captured.out
    assert "cola, seed 0: run again" in captured.err
    assert predictions(tmp_path / "run") != before
    write_jsonl(data / "cola" / "validation.jsonl", make_rows("cola", 8, seed=9))
    run_here(model, data, tmp_path / "run", epochs=2)
    assert "0 of them finished before" in capsys.readouterr().out


def test_a_broken_cell_does_not_stop_the_others(model, data, tmp_path, monkeypatch, capsys):
    real = finetune_module.train

    def breaks_on_seed_1(network, features, recipe, seed, *rest):
        if seed == 1:
            raise RuntimeError("out of memory")
        return real(network, features, recipe, seed, *rest)

    monkeypatch.setattr(finetune_module, "train", breaks_on_seed_1)
    assert run_here(model, data, tmp_path / "run", tasks="cola,mrpc,rte", seeds="3") == 1
    captured = capsys.readouterr()
    assert "4 cells" in captured.out
    assert "broken: cola, seed 1; rte, seed 1: RuntimeError: out of memory" in captured.err
    assert re.search("broken: mrpc, seed 0; mrpc, seed 1; mrpc, seed 2: .*no split train of mrpc", captured.err)
    assert info(tmp_path / "run")["state"] == "failed"
    assert "Traceback" in (tmp_path / "run" / "cells" / "cola" / "1.error.txt").read_text()
    monkeypatch.undo()
    assert run_here(model, data, tmp_path / "run", tasks="cola,rte", seeds="3") == 0
    assert "4 of them finished before" in capsys.readouterr().out
    assert not (tmp_path / "run" / "cells" / "cola" / "1.error.txt").exists()
    assert info(tmp_path / "run")["state"] == "done"


BAD = {
    "missing file": (None, "no split validation of cola"),
    "empty split": ([], "the split is empty"),
    "wrong columns": ([{"text": "a", "label": 0}], "no column sentence"),
    "unknown label": ([{"sentence": "a", "label": "maybe"}], "unknown label 'maybe'; cola has 0 (unacceptable)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_told_in_a_line(case, model, tmp_path, capsys):
    rows, message = BAD[case]
    write_jsonl(tmp_path / "data" / "cola" / "train.jsonl", make_rows("cola", 4))
    if rows is not None:
        write_jsonl(tmp_path / "data" / "cola" / "validation.jsonl", rows)
    assert run_here(model, tmp_path / "data", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert message in error
    assert str(tmp_path / "data") in error
    assert "Traceback" not in error


def test_bad_requests_are_told_before_anything_is_written(model, data, tmp_path, capsys):
    for options in ({"tasks": "colla"}, {"seeds": "none"}, {"epochs": "-1"}, {"epoch": "1"}, {"max_length": "99"}):
        assert run_here(model, data, tmp_path / "run", **options) == 2
        assert "sharedqkv finetune: error:" in capsys.readouterr().err
    assert run_here(model, tmp_path / "nowhere", tmp_path / "run") == 2
    assert f"--data {tmp_path / 'nowhere'}: no such folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_another_model_needs_another_run_folder(model, data, tmp_path, capsys):
    run_here(model, data, tmp_path / "run", seeds="1")
    assert run_here(make_model(tmp_path / "other"), data, tmp_path / "run") == 2
    assert "fine-tunings of another model" in capsys.readouterr().err


def test_a_model_with_another_number_of_labels_gets_a_new_head_and_a_notice(model, data, tmp_path, capsys):
    make_task(tmp_path / "data", "mnli")
    run_here(model, tmp_path / "data", tmp_path / "mnli", "--keep-models", tasks="mnli", seeds="1")
    capsys.readouterr()
    assert run_here(tmp_path / "mnli" / "models" / "mnli" / "0", data, tmp_path / "run", tasks="rte") == 0
    assert "has a fine-tuned head; it is not used: every seed starts with a new one" in capsys.readouterr().err


def test_cut_texts_are_counted(model, data, tmp_path, capsys):
    run_here(model, data, tmp_path / "run", seeds="1", max_length=6)
    assert re.search(
        r"cola: texts cut to fit: \d+ of 24 in train; \d+ of 12 in cola/validation", capsys.readouterr().out
    )


@pytest.mark.parametrize("name", ["squad", "squad_v2"])
def test_squad(name, model, tmp_path, capsys):
    unanswerable = name == "squad_v2"
    for split, count in (("train", 40), ("validation", 10)):
        write_parquet(tmp_path / "data" / name / f"{split}-0.parquet", make_questions(count, unanswerable))
    options = {**SQUAD_FAST, "tasks": name, "seeds": "1", "epochs": 25, "learning_rate": 0.01}
    assert run_here(model, tmp_path / "data", tmp_path / "run", "--keep-models", **options) == 0
    assert "exact_match" in capsys.readouterr().out
    metrics = info(tmp_path / "run")["scores"][name]["metrics"]
    assert metrics["f1"]["mean"] > (0.9 if name == "squad" else 0.4)
    assert ("best_f1" in metrics) == unanswerable
    context = "the song is fine . bob wrote the play ."
    assert predict(tmp_path / "run", "--text", "who wrote the play ?", context) == 0
    answer = json.loads(capsys.readouterr().out)
    assert unanswerable or answer["prediction"] == "bob"
    assert set(answer["scores"]) == {"span", "null_odds"}


def predict(*arguments) -> int:
    return sharedqkv_console.main(["predict", *map(str, arguments)])


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    """A run with models that learned something, from GLUE's own TSV."""
    folder = tmp_path_factory.mktemp("tuned")
    for split, count in (("train", 48), ("validation", 12)):
        write_official_tsv(folder / "data", "sst2", split, make_rows("sst2", count))
        write_official_tsv(folder / "data", "rte", split, make_rows("rte", count))
    options = {"tasks": "sst2,rte", "seeds": "2", "epochs": 12, "learning_rate": 0.005}
    assert run_here(model, folder / "data", folder / "run", "--keep-models", **options) == 0
    return folder / "run"


def answers(text: str) -> list[str]:
    return [json.loads(line)["prediction"] for line in text.splitlines()]


def test_predict_from_text_files_and_standard_input(tuned, tmp_path, monkeypatch, capsys):
    texts = ["the film is fine", "the book is awful very"]
    for text in texts:
        assert predict(tuned, "--task", "sst2", "--text", text) == 0
    given = capsys.readouterr().out
    assert answers(given) == ["positive", "negative"]
    scores = json.loads(given.splitlines()[0])["scores"]
    assert sum(scores.values()) == pytest.approx(1)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    write_jsonl(tmp_path / "texts.jsonl", [{"sentence": text} for text in texts])
    for name in ("texts.txt", "texts.jsonl"):
        assert predict(tuned, "--task", "sst2", "--file", tmp_path / name) == 0
        assert answers(capsys.readouterr().out) == ["positive", "negative"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts)))
    assert predict(tuned, "--task", "sst2", "--seed", 1) == 0
    assert answers(capsys.readouterr().out) == ["positive", "negative"]


def test_predict_with_8_bits(tuned, capsys):
    pytest.importorskip("torchao")
    assert predict(tuned, "--task", "sst2", "--int8", "--text", "the book is awful very") == 0
    assert answers(capsys.readouterr().out) == ["negative"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a"], "has models for rte, sst2: choose one with --task"),
        (["--task", "cola", "--text", "a"], "has no model of task cola"),
        (["--task", "sst2", "--seed", "9", "--text", "a"], "has no model of task sst2, seed 9"),
        (["--task", "rte", "--text", "a"], "expected 2 texts (sentence1, sentence2), not 1"),
        (["--task", "sst2", "--file", "/dev/null"], "no text to predict for"),
        (["--task", "sst2", "--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_questions_are_told(arguments, message, tuned, capsys):
    assert predict(tuned, *arguments) == 2
    assert message in capsys.readouterr().err


def test_predict_counts_what_it_cuts(tuned, capsys):
    assert predict(tuned, "--task", "sst2", "--text", "the film is fine " * 20) == 0
    assert "1 of 1 texts were cut to fit 24 tokens" in capsys.readouterr().err


def test_predict_needs_kept_models(model, data, tmp_path, capsys):
    run_here(model, data, tmp_path / "run", seeds="1")
    assert predict(tmp_path / "run", "--text", "a") == 2
    assert "kept no model" in capsys.readouterr().err


def test_kept_models_are_added_to_a_finished_run_and_never_outlive_it(model, data, tmp_path):
    run = tmp_path / "run"
    run_here(model, data, run, seeds="1")
    before = predictions(run)
    run_here(model, data, run, "--keep-models", seeds="1")
    assert (run / "models" / "cola" / "0" / "config.json").is_file()
    assert predictions(run) == before
    run_here(model, data, run, seeds="1", epochs=2)
    assert not (run / "models" / "cola" / "0").exists()


def test_compare_two_runs(model, data, tuned, tmp_path, capsys):
    other = make_model(tmp_path / "other", "standard", seed=1)
    options = {"tasks": "sst2,rte", "seeds": "2"}
    assert run_here(other, tuned.parent / "data", tmp_path / "run", **options) == 0
    capsys.readouterr()
    assert sharedqkv_console.main(["compare", str(tuned), str(tmp_path / "run")]) == 0
    words = capsys.readouterr().out
    assert "sst2: no verdict: with 2 pairs of fine-tuning seeds" in words
    assert "not of the variants" in words
    assert "Holm's correction over 2 comparisons" in words
    assert sharedqkv_console.main(["compare", "--json", "--a", str(tuned), "--b", str(tmp_path / "run")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [task["model_a"] for task in report["tasks"]] == ["shared", "shared"]
    assert report["tasks"][1]["mean_a"] == pytest.approx(info(tuned)["scores"]["sst2"]["metrics"]["score"]["mean"])


def test_the_recipe_file(model, data, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("epochs: 2\nbatch_size: 4\n")
    assert run_here(model, data, tmp_path / "run", "--recipe", str(recipe), seeds="1", epochs=1) == 0
    record = json.loads((tmp_path / "run" / "cells" / "cola" / "0.json").read_text())
    assert (record["recipe"]["epochs"], record["train"]["steps"]) == (1, 3)  # the command line wins, batches of 8
    assert sharedqkv_console.main(
        [part for part in arguments_for(model, data, tmp_path / "two", "--recipe", str(recipe), seeds="1")
         if not part.startswith(("--epochs", "--batch_size"))]
    ) == 0  # fmt: skip
    record = json.loads((tmp_path / "two" / "cells" / "cola" / "0.json").read_text())
    assert record["train"]["steps"] == 12
