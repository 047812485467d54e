"""The studies that come with the package."""

from importlib.resources import files
from pathlib import Path

SHIPPED = Path(str(files("sharedqkv"))) / "studies"


def shipped_studies() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))
