"""Recipes of fine-tuning: defaults with sources, and what replaces them."""

import dataclasses
import re

import pytest

from sharedqkv.tasks.recipe import SOURCES, FinetuneRecipe, load_recipes

NOT_TUNED = {
    "search",
    "eval_batch_size",
    "bf16",
    "tf32",
    "compile",
    "cuda_graphs",
    "seeds_at_once",
    "attn_implementation",
}


def test_every_hyper_parameter_has_a_source():
    assert set(SOURCES) == {field.name for field in dataclasses.fields(FinetuneRecipe)} - NOT_TUNED


def test_defaults_are_those_of_the_sources():
    recipes = load_recipes(["cola", "squad", "squad_v2"], None, {})
    wanted = ("learning_rate", "epochs", "batch_size", "warmup", "max_length")
    assert [getattr(recipes["cola"], name) for name in wanted] == [1e-5, 5, 16, 0.1, 128]
    assert [getattr(recipes["squad"], name) for name in (*wanted, "stride")] == [3e-5, 2, 32, 0.1, 384, 128]
    assert recipes["squad_v2"].batch_size == 48


def test_the_command_line_beats_the_file_which_beats_the_task(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("learning_rate: 2e-5\nepochs: 3\n")
    recipes = load_recipes(["cola", "squad"], path, {"epochs": 1})
    assert [(recipe.learning_rate, recipe.epochs) for recipe in recipes.values()] == [(2e-5, 1), (2e-5, 1)]
    assert recipes["squad"].max_length == 384


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epochs: 3\nlearning_rat: 1", "line 2: unknown key 'learning_rat'. Did you mean 'learning_rate'?"),
        ("epochs: many", "line 1: epochs must be a number, not 'many'"),
        ("epochs: 0", "epochs must be positive"),
        ("warmup: 1.0", "warmup must be in [0, 1)"),
        ("search: {seed: [1]}", "search: 'seed' cannot be searched"),
        ("search: {epochs: 3}", "search: epochs must be a list of values"),
        ("cuda_graphs: true\ncompile: true", "cuda_graphs and compile exclude each other"),
        (
            "cuda_graphs: true\nattn_implementation: eager",
            "cuda_graphs needs attn_implementation sdpa or fused, not 'eager'",
        ),
        ("seeds_at_once: 0", "seeds_at_once must be positive, not 0"),
        ("seeds_at_once: 2\ncompile: true", "seeds_at_once and compile exclude each other"),
        (
            "seeds_at_once: 2\nattn_implementation: fused",
            "seeds_at_once needs attn_implementation sdpa, not 'fused'",
        ),
        ("search: {epochs: [fast]}", "search: epochs must be a number, not 'fast'"),
    ],
)
def test_mistakes_name_file_and_line(content, message, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        load_recipes(["cola"], path, {})
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no recipe"):
        load_recipes(["cola"], tmp_path / "none.yaml", {})


def test_windows_must_advance():
    with pytest.raises(ValueError, match=r"squad: max_length 128 leaves 61 tokens .* stride 128"):
        load_recipes(["squad"], None, {"max_length": 128})
    load_recipes(["cola"], None, {"max_length": 128})


def test_candidates_are_all_combinations():
    recipe = FinetuneRecipe(epochs=7, search={"learning_rate": [1e-5, "3e-5"], "batch_size": [16, 32]})
    found = [(one.learning_rate, one.batch_size, one.epochs, one.search) for one in recipe.candidates()]
    assert found == [(1e-5, 16, 7, {}), (1e-5, 32, 7, {}), (3e-5, 16, 7, {}), (3e-5, 32, 7, {})]
    assert FinetuneRecipe().candidates() == [FinetuneRecipe()]
