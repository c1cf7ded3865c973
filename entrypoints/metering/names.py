"""The names of the meters. Listing the workloads imports this module, so it has nothing else."""

from __future__ import annotations

import os

FOLDER = os.path.join(os.path.dirname(__file__), "meters")
AUTO, NONE = "auto", "none"


def names() -> list[str]:
    """Return the names of all meters."""
    files = (os.path.splitext(name) for name in os.listdir(FOLDER))
    return sorted(stem for stem, ending in files if ending == ".py" and not stem.startswith("_"))
