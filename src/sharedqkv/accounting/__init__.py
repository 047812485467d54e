"""Parameters, FLOPs, memory and time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharedqkv.accounting.flops import flops_formula, forward_flops_per_token
    from sharedqkv.accounting.parameters import ParameterCount, count_parameters
    from sharedqkv.accounting.savings import Cost, Saving, cost_of, default_specs, saving_of, savings_report

__all__ = [
    "Cost",
    "ParameterCount",
    "Saving",
    "cost_of",
    "count_parameters",
    "default_specs",
    "flops_formula",
    "forward_flops_per_token",
    "saving_of",
    "savings_report",
]


def __getattr__(name: str) -> Any:
    """Imported at first use: `sharedqkv bench --help` needs settings of this room, but no torch."""
    for module in ("flops", "parameters", "savings") if name in __all__ else ():
        found = vars(import_module(f"{__name__}.{module}")).get(name)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
