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

_MODULES = {
    "Cost": "savings",
    "ParameterCount": "parameters",
    "Saving": "savings",
    "cost_of": "savings",
    "count_parameters": "parameters",
    "default_specs": "savings",
    "flops_formula": "flops",
    "forward_flops_per_token": "flops",
    "saving_of": "savings",
    "savings_report": "savings",
}


def __getattr__(name: str) -> Any:
    """Imported at first use: `sharedqkv bench --help` needs settings of this room, but no torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
