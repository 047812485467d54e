"""Study files: what is in them comes out, and what is wrong is told with line and key before anything runs."""

import pytest

from sharedqkv.study.plan import load_study
from sharedqkv.study.shipped import shipped_studies

GOOD = """\
title: A trial
variants: [standard, "standard:num_hidden_layers=1", shared]
seeds: [3, 5]
corpus:
  world: 40
  train_vocab_size: 300
  length: 32
pretrain:
  recipe: tiny_cpu
  max_steps: 4
finetune:
  tasks: [sentiment, entailment]
  seeds: 2
  epochs: 1
robust:
  noise: keyboard,gaussian
  severity: [1, 5]
  examples: 20
"""


@pytest.fixture
def write(tmp_path):
    def written(text: str):
        path = tmp_path / "trial.yaml"
        path.write_text(text)
        return str(path)

    return written


def test_a_study(write, tmp_path):
    study = load_study(write(GOOD))
    assert study.name == "trial"
    assert [entrant.slug for entrant in study.entrants] == ["standard", "standard-num_hidden_layers-1", "shared"]
    assert study.entrants[1].model == {"num_hidden_layers": 1}
    assert study.seeds == [3, 5]
    assert study.world is not None
    assert study.world.world == 40
    assert list(study.tasks) == ["sentiment", "entailment"]
    assert study.tasks["sentiment"].epochs == 1
    assert study.finetune_seeds == [0, 1]
    assert study.robust is not None
    assert (study.robust.noises, study.robust.severities, study.robust.limit) == (["keyboard", "gaussian"], (1, 5), 20)
    recipe = study.recipe(study.entrants[1], 3, tmp_path, tmp_path / "run")
    assert (recipe.max_steps, recipe.seed, recipe.model) == (4, 3, {"num_hidden_layers": 1})
    assert recipe.position_embedding_type == "rotary"  # tiny_cpu's


def test_a_study_may_ask_more(write):
    asked = "questions: [{model: shared, against: ['standard:num_hidden_layers=1']}]\n"
    study = load_study(write(GOOD + asked))
    assert study.file.questions == ({"model": "shared", "against": ["standard:num_hidden_layers=1"]},)


def test_positions_multiply_the_variants(write):
    study = load_study(write(GOOD + "positions: [absolute, rotary]\n"))
    assert len(study.entrants) == 6
    assert study.entrants[-1].name == "shared, rotary"
    assert study.entrants[-1].slug == "shared-rotary"
    assert study.entrants[2].position_embedding_type == "absolute"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("title:", "titel:"), r"trial.yaml, line 1: unknown key 'titel'. Did you mean 'title'\?"),
        (("shared]", "sharde]"), r"line 2: variants: unknown attention_variant 'sharde'. Did you mean 'shared'\?"),
        (("title: A trial", "title: A\ntitle: B"), "line 2: title stands there twice"),
        (("max_steps: 4", "max_steps: 4\n  max_steps: 5"), "line 11: max_steps stands there twice"),
        (("max_steps: 4", "attn_implementation: spda"), "line 10: pretrain: attn_implementation 'spda' is unknown"),
        (("epochs: 1", "attn_implementation: spda"), "line 14: finetune: attn_implementation 'spda' is unknown"),
        (("shared]", "standard]"), "line 2: variants: standard stands there twice"),
        (("=1", "=x"), "line 2: variants: standard:num_hidden_layers=x: .*num_hidden_layers"),
        (("[3, 5]", "[3, 3]"), "line 3: seeds: "),
        (("[3, 5]", "soon"), "line 3: seeds must be a whole number or a list"),
        (("world: 40", "wordl: 40"), "line 5: unknown key 'wordl'"),
        (("length: 32", "lenght: 32"), r"line 7: unknown key 'lenght'. Did you mean 'length'\?"),
        (("  train_vocab_size: 300\n", ""), "either a --tokenizer, or with --train-vocab-size"),
        (
            ("size: 300", "size: 5"),
            "line 6: --train-vocab-size must be at least 6, for the special tokens and one char",
        ),
        (
            ("size: 300", "size: 30"),
            r"line 6: corpus: --train-vocab-size 30 is too small .*: give at least \d\d, for 5",
        ),
        (("recipe: tiny_cpu", "recipe: tiny"), "no recipe 'tiny'"),
        (("max_steps: 4", "max_stps: 4"), r"line 10: unknown key 'max_stps'. Did you mean 'max_steps'\?"),
        (("max_steps: 4", "max_steps: four"), "line 10: max_steps must be a whole number"),
        (("max_steps: 4", "seed: 4"), "line 10: pretrain: seed is the study's to set"),
        (("entailment]", "cola]"), "line 12: finetune: tasks: the built-in world has no cola; it has acceptability"),
        (("entailment]", "spam]"), "line 12: finetune: --tasks: unknown 'spam'"),
        (("epochs: 1", "epoch: 1"), r"line 14: unknown key 'epoch'. Did you mean 'epochs'\?"),
        (("epochs: 1", "data: nowhere"), "line 14: finetune: data: nowhere: no such folder"),
        (("epochs: 1", "data: ."), "line 14: finetune: --data .: no split train of"),
        (("keyboard", "keybord"), "line 16: robust: --noise: unknown keybord"),
        (("[1, 5]", "[1, 9]"), "line 17: robust: --severity"),
        (("world: 40", "world: 0"), "line 5: world must be at least 1, not 0"),
        (("world: 40", "world: 40\n  train: 0"), "line 6: train must be at least 1, not 0"),
        (("length: 32", "length: 4"), "line 7: --length must be at least 8, not 4"),
        (("length: 32", "length: 32\n  seed: x"), "line 8: seed must be a whole number"),
        (("max_steps: 4", "max_steps: 0"), "line 10: max_steps must be positive"),
        (("max_steps: 4", "rows_per_step: 33"), "line 10: rows_per_step 33 must be a multiple of rows_per_device 32"),
        (("max_steps: 4", "next_sentence: true"), "line 4: corpus: next_sentence .* layout: pairs"),
        (("max_steps: 4", "model: {max_position_embeddings: 16}"), "line 7: corpus: length 32 is more than the 16"),
        (("max_steps: 4", "model: {max_position_embeddings: 64}"), "line 11: finetune: max_length 128 .* the 64 pos"),
        (("epochs: 1", "epochs: 0"), "line 14: epochs must be positive"),
        (("epochs: 1", "max_length: 513"), "line 14: finetune: max_length 513 is more than the 512 positions of"),
        (("epochs: 1", "search: {epochs: [1, 0]}"), "line 14: search: epochs must be positive"),
        (("entailment]", "span_qa]\n  stride: 200"), "line 13: finetune: span_qa: .* lower stride"),
        (("entailment]", "ax]"), "line 12: finetune: tasks: ax has no public labels"),
        (("examples: 20", "examples: 0"), "line 18: examples must be at least 1, not 0"),
        (("examples: 20", "domains: [imdb]"), "line 18: robust: domains: imdb: for none of the tasks sentiment, ent"),
        (("examples: 20", "examples: 20\nbench: {rows: 0}"), "line 19: rows must be at least 1, not 0"),
        (("examples: 20", "examples: 20\nbench: {repeats: 0}"), "line 19: repeats must be at least 1, not 0"),
        (("examples: 20", "examples: 20\nthreads: 0"), "line 19: threads must be at least 1, not 0"),
        (("examples: 20", "examples: 20\ngpus_per_run: 3"), "line 8: pretrain: rows_per_step 32 .* multiple of 96"),
        (
            ("examples: 20", "examples: 20\nquestions: [{model: shared, against: [narrow]}]"),
            "line 19: questions: narrow is not among the variants: write it as there, standard, ",
        ),
        (
            ("examples: 20", "examples: 20\nquestions: [{model: shared, against: [shared]}]"),
            "line 19: questions: give others that shared is compared with, each once",
        ),
        (
            ("examples: 20", "examples: 20\nquestions: [{model: shared, against: [standard, standard]}]"),
            "line 19: questions: give others that shared is compared with, each once",
        ),
        (
            ("examples: 20", "examples: 20\nquestions: [{modle: shared, against: [standard]}]"),
            r"unknown key 'modle'. Did you mean 'model'\?",
        ),
        (("examples: 20", "exmples: 20"), r"line 18: unknown key 'exmples'. Did you mean 'examples'\?"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(change, message, write):
    assert change[0] in GOOD
    with pytest.raises((ValueError, OSError), match=message):
        load_study(write(GOOD.replace(*change)))


def test_a_vocabulary_too_small_for_text_of_ones_own_is_told_before_anything_runs(write, tmp_path):
    (tmp_path / "own.txt").write_text("the quick brown fox jumps over the lazy dog\n")
    own = GOOD.replace("world: 40", f"source: [{tmp_path / 'own.txt'}]")
    own = own[: own.index("finetune:")]
    assert load_study(write(own)).prepare["train_vocab_size"] == 300
    with pytest.raises(ValueError, match=r"line 6: corpus: --train-vocab-size 30 is too small for this text"):
        load_study(write(own.replace("size: 300", "size: 30")))


def test_a_variant_with_positions_of_its_own(write):
    own = GOOD.replace("=1", "=1,position_embedding_type=absolute")
    study = load_study(write(own))
    assert [entrant.position_embedding_type for entrant in study.entrants] == ["rotary", "absolute", "rotary"]
    with pytest.raises(ValueError, match=r"line 2: variants: .*=absolute names its positions, and `positions` asks"):
        load_study(write(own + "positions: [absolute, rotary]\n"))


def test_robust_needs_models(write):
    cut = GOOD[: GOOD.index("finetune:")] + GOOD[GOOD.index("robust:") :]
    with pytest.raises(ValueError, match="line 11: robust: needs finetune"):
        load_study(write(cut))


def test_an_unknown_study_lists_the_shipped():
    with pytest.raises(FileNotFoundError, match=r"no study 'quik'.*quick"):
        load_study("quik")


@pytest.mark.parametrize("name", shipped_studies())
def test_shipped_studies_are_sound(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = load_study(name)
    assert study.file.description
    assert study.entrants[0].variant == "standard"
