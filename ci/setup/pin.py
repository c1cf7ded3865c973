"""Write one base into the pins file of the stand-ins (its contract is schemas/pins-1.0.json).

The file is replaced atomically, and only if something changes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def pinned(document: Document, registry: str, reference: str, machine: str, stand_in: Document) -> Document:
    """Return the document with `reference` on `machine` (as in `uname -m`) pinned to `stand_in`."""
    recorded = document.get("bases", {})
    bases = {name: pins for name, pins in recorded.items() if all(isinstance(pin, dict) for pin in pins.values())}
    bases[reference] = {**bases.get(reference, {}), machine: stand_in}
    return {"schema_version": "1.0", "registry": registry, "bases": bases}


def main(path: Path, registry: str, reference: str, machine: str, stand_in: str) -> None:
    """Update the file at `path`; `stand_in` is JSON."""
    before = json.loads(path.read_text()) if path.exists() else {}
    after = pinned(before, registry, reference, machine, json.loads(stand_in))
    if after == before:
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(after, indent=2, sort_keys=True) + "\n")
    beside.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
