"""Where the document goes: checked against its schema, then written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any, Mapping

from entrypoints.statuses import UsageError

SCHEMA = Path(__file__).resolve().parent.parent / "schemas" / "result-1.0.json"
STDOUT = 1


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
            _print(text.encode())
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


def _print(data: bytes) -> None:
    """Past `sys.stdout`, whose buffer would complain once more at exit when nobody reads."""
    while data:
        data = data[os.write(STDOUT, data) :]


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


class Contract:
    """The schema of the document. Raises UsageError where jsonschema is missing."""

    def __init__(self) -> None:
        try:
            import jsonschema  # late: --help and --list do without
        except ImportError as error:
            raise UsageError(f"cannot check results: {error}. Install jsonschema 4.17 or later") from None
        self.library_version = metadata.version("jsonschema")
        self.validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))

    def problems(self, document: Mapping[str, Any], limit: int = 5) -> list[str]:
        """What the schema objects to, as path and complaint."""
        errors = sorted(self.validator.iter_errors(document), key=lambda error: error.json_path)
        return [f"{error.json_path}: {error.message[:200]}" for error in errors[:limit]]
