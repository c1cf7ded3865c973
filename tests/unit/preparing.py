"""Text prepared by small tests."""

import json
from pathlib import Path
from typing import Any

from sifmark.commands.data import prepare as prepare_data
from sifmark.core import paths
from sifmark.core.schemas import validator

LICENCE = (paths.ROOT / "LICENSE").read_text()


def prepare(source: Path, target: Path, format: str = "tokens", strict: bool = False, **options: Any) -> dict[str, Any]:  # noqa: A002
    options = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    prepare_data(str(source), str(target), format, strict=strict, **options)
    manifest = json.loads((target / "manifest.json").read_text())
    validator("manifest-1.0").validate(manifest)
    assert manifest["samples"] == sum(file["samples"] for file in manifest["files"])
    return manifest


def text_file(folder: Path, text: str = LICENCE, name: str = "text.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode())
    return folder / name
