"""Packages of third parties, found by the entry points they declare."""

import logging
from importlib.metadata import EntryPoint, entry_points

log = logging.getLogger(__name__)

_left_out: dict[str, list[str]] = {}
"""For each group that was loaded: what is wrong with its broken plugins."""


def load_plugins(group: str) -> None:
    """Import all that is declared in the group, once; what cannot be imported is told and left out."""
    if group in _left_out:
        return
    _left_out[group] = []
    for entry_point in entry_points(group=group):
        try:
            entry_point.load()
        except Exception as error:  # whatever the code of others does: who does not need it goes on
            problem = _describe(entry_point, error)
            _left_out[group].append(problem)
            log.warning("%s", problem)


def left_out(group: str) -> str:
    """To end the error about an unknown name with: it may be a broken plugin's."""
    return "".join(f" Left out: {problem}." for problem in _left_out.get(group, []))


def _describe(entry_point: EntryPoint, error: Exception) -> str:
    package = entry_point.dist.name if entry_point.dist else entry_point.module
    return (
        f"the plugin {entry_point.name!r} ({entry_point.value}) of the package {package} cannot be loaded "
        f"({type(error).__name__}: {error}): fix it, or uninstall it with `pip uninstall {package}`"
    )
