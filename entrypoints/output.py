"""Where the document goes: checked against its schema, then written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Mapping

from entrypoints.statuses import UsageError

SCHEMA = Path(__file__).resolve().parent.parent / "schemas" / "result-1.0.json"


class Writer:
    """A place for one document. Raises UsageError, before any run, where nothing can be written."""

    def __init__(self, output: str | None) -> None:
        self.target = None if output is None else Path(output).resolve()  # through links: they stay links
        if self.target is not None:
            _check(output, self.target)

    def write(self, document: Mapping[str, Any]) -> None:
        """Put the document there, whole. Raises OSError where the place has failed since."""
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        if self.target is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            _replace(self.target, text)


def _check(output: str | None, target: Path) -> None:
    if target.exists() and not target.is_file():
        raise UsageError(f"--output {output}: that is no regular file. Name a file, or leave --output out")
    if not target.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {target.parent}. Make it first")
    temporary = _beside(target)
    try:
        temporary.touch(exist_ok=False)  # asking for permissions is no proof: the file system may be read-only
        temporary.unlink()
    except OSError as error:
        reason = f"{error.strerror} in {target.parent}"
        raise UsageError(f"--output {output}: {reason}. Name a folder that this user may write to") from None


def _replace(target: Path, text: str) -> None:
    temporary = _beside(target)
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}")


def problems(document: Mapping[str, Any], limit: int = 5) -> list[str]:
    """What the schema objects to, as path and complaint."""
    import jsonschema  # late: --help and --list do without

    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    errors = sorted(validator.iter_errors(document), key=lambda error: error.json_path)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:limit]]
