"""Parameters, FLOPs, memory and time."""

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
