"""The search for a learning rate: each is tried for the beginning of a run, and that with the lowest loss is taken."""

import math
from collections.abc import Mapping

from sharedqkv.training.run_folder import RunFolder

_JUDGED_SHARE = 0.2
"""The last part of a search run, by whose training loss it is judged."""


def judged_loss(run: RunFolder) -> float | None:
    """The training loss at the end, on rows not seen before; held-out text has no say in it.

    Infinite where training broke down; None where the run is not there, or did not end for a reason of its own.
    """
    if not run.exists():
        return None
    if broke_down(run):
        return math.inf
    if run.info()["state"] != "done":
        return None
    seen = [record["loss"] for record in run.metrics() if "loss" in record]
    if not seen:
        raise ValueError(
            f"{run.path} logged no loss: give the study's pretrain fewer logging_steps, or the plan's search more "
            "tokens"
        )
    judged = seen[-max(1, round(_JUDGED_SHARE * len(seen))) :]
    return sum(judged) / len(judged)


def broke_down(run: RunFolder) -> bool:
    return "NonFiniteLoss" in (run.info().get("error") or "")


def best_rate(losses: Mapping[float, float | None]) -> float | None:
    """None as long as a loss is missing, and where training broke down with every rate."""
    found = {rate: loss for rate, loss in losses.items() if loss is not None}
    best = min(found, key=lambda rate: found[rate], default=None)
    if best is None or found[best] == math.inf or len(found) < len(losses):
        return None
    return best
