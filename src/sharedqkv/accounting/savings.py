"""What each way of sharing saves against standard attention, and what the paper's two percentages count."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sharedqkv.accounting.flops import MASKED_SHARE, forward_flops_per_token
from sharedqkv.accounting.parameters import ParameterCount, count_parameters
from sharedqkv.attention import variant_names
from sharedqkv.models.specs import config_from_spec

DEFAULT_LENGTHS = (128, 512)


@dataclass(frozen=True)
class Cost:
    spec: str
    variant: str
    options: dict[str, Any]
    num_hidden_layers: int
    parameters: ParameterCount
    flops_per_token: dict[int, float]
    """By length, for a forward pass with the MLM head on 15 % of the tokens."""


@dataclass(frozen=True)
class Saving:
    """Shares of standard's cost that are saved; negative where more is spent."""

    qkv_parameters: float
    attention_block_parameters: float
    model_parameters: float
    flops_per_token: dict[int, float]


def cost_of(spec: str, size: str, lengths: Sequence[int] = DEFAULT_LENGTHS, **overrides: Any) -> Cost:
    config = config_from_spec(spec, size, **{"max_position_embeddings": max(512, *lengths), **overrides})
    return Cost(
        spec=spec,
        variant=config.attention_variant,
        options=config.attention_options,
        num_hidden_layers=config.num_hidden_layers,
        parameters=count_parameters(config),
        flops_per_token={length: forward_flops_per_token(config, length) for length in lengths},
    )


def saving_of(cost: Cost, standard: Cost) -> Saving:
    return Saving(
        qkv_parameters=1 - cost.parameters.qkv / standard.parameters.qkv,
        attention_block_parameters=1 - cost.parameters.attention_block / standard.parameters.attention_block,
        model_parameters=1 - cost.parameters.model / standard.parameters.model,
        flops_per_token={
            length: 1 - flops / standard.flops_per_token[length] for length, flops in cost.flops_per_token.items()
        },
    )


def default_specs(size: str) -> list[str]:
    """Every variant, the biased forms of the shared ones, and standard cut to about the size of shared."""
    specs = []
    for name in variant_names():
        specs.append(name)
        if name in ("shared", "tied"):
            specs.append(f"{name}:bias=true")
    return [*specs, f"standard:num_hidden_layers={layers_at_size_of_shared(size)}"]


def layers_at_size_of_shared(size: str) -> int:
    """How many layers of standard come nearest to the parameters of shared; in a tiny model that may be all of them."""
    one, two = (count_parameters(config_from_spec(f"standard:num_hidden_layers={n}", size)).model for n in (1, 2))
    target = count_parameters(config_from_spec("shared", size)).model
    return max(1, 1 + round((target - one) / (two - one)))


def paper_claims() -> list[dict[str, Any]]:
    """The paper's 66.53 % and 12.94 % beside what they count, from real modules of BERT-base, of which it speaks."""
    size = "base"
    standard, shared, biased, no_diagonals = (
        count_parameters(config_from_spec(spec, size))
        for spec in ("standard", "shared", "shared:bias=true", "tied:bias=true")
    )
    width = config_from_spec("standard", size).hidden_size
    return [
        {
            "paper": "66.53 % fewer parameters in the attention block",
            "counts": "Wq, Wk, Wv without biases against Ws and three diagonals, no Wo: 1 - (d² + 3d) / 3d²",
            "measured": _without_biases(width),
            "explanation": (
                f"at BERT-base's d = 768 this is {_without_biases(768):.4%}, cut off after two digits, not rounded. "
                f"Counting standard's biases too, {_saved(shared.qkv, standard.qkv)} is saved without a bias on Ws and "
                f"{_saved(biased.qkv, standard.qkv)} with it; counting Wo as well, "
                f"{_saved(shared.attention_block, standard.attention_block)}."
            ),
        },
        {
            "paper": "12.94 % fewer parameters in BERT-base",
            "counts": "Ws with a bias, the three diagonals left out of the count",
            "measured": 1 - no_diagonals.model / standard.model,
            "explanation": (
                f"with the diagonals counted, {_saved(shared.model, standard.model)} of the whole model is saved "
                f"without a bias on Ws and {_saved(biased.model, standard.model)} with it."
            ),
        },
    ]


def _without_biases(width: int) -> float:
    return 1 - (width**2 + 3 * width) / (3 * width**2)


def _saved(count: int, standard: int) -> str:
    return f"{1 - count / standard:.2%}"


def savings_report(size: str, specs: Sequence[str], lengths: Sequence[int]) -> dict[str, Any]:
    """Everything `sharedqkv params` shows, ready for JSON."""
    standard = cost_of("standard", size, lengths)
    costs = [cost_of(spec, size, lengths) for spec in specs]
    return {
        "size": size,
        "lengths": list(lengths),
        "flops": f"forward, matrix products only, multiply-add = 2, MLM head on {MASKED_SHARE:.0%} of the tokens",
        "models": [{**asdict(cost), "saving": asdict(saving_of(cost, standard))} for cost in costs],
        "paper": paper_claims(),
    }
