"""Pre-train an encoder: `sharedqkv pretrain RECIPE [--field value ...]`.

RECIPE is the name of a shipped recipe or the path of a YAML file; any of its fields can be given as --field value.
Run it under `torchrun` or `accelerate launch` for many devices.
"""

import argparse
import os
import sys

from sharedqkv import schema
from sharedqkv.training.recipe import PretrainRecipe, load_recipe, shipped_recipes

TAKES_FIELDS = True  # all other --field value arguments are the recipe's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "sharedqkv pretrain RECIPE [--resume auto|FOLDER] [--field value ...]"
    parser.epilog = f"fields of a recipe (with their defaults):\n{schema.describe(PretrainRecipe)}"
    parser.add_argument("recipe", metavar="RECIPE", help=f"a YAML file, or one of: {', '.join(shipped_recipes())}")
    parser.add_argument(
        "--resume",
        default="no",
        metavar="auto|FOLDER",
        help="continue from the newest complete checkpoint of the run in --output, or from this checkpoint",
    )


def run(options: argparse.Namespace) -> int:
    recipe = load_recipe(options.recipe, schema.parse_overrides(PretrainRecipe, options.fields))

    from sharedqkv.training.pretrain import pretrain, quiet_transformers

    quiet_transformers()
    outcome = pretrain(recipe, options.resume)
    if int(os.environ.get("RANK", "0")):
        return 0
    if outcome.signal is not None:
        print(
            f"stopped at step {outcome.step}; saved in {outcome.run.checkpoints}. Continue with the same command and "
            "--resume auto",
            file=sys.stderr,
        )
        return 128 + outcome.signal
    print(f"done after {outcome.step} steps: {outcome.run.path} (held-out loss {outcome.run.info()['eval_loss']:.4f})")
    return 0
