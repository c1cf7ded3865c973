"""The study.init command: a study file to begin with."""

from pathlib import Path

from sifmark.core.console import output, status
from sifmark.core.errors import UsageError
from sifmark.core.files import write_text
from sifmark.studies.template import study_template


def write_study(workloads: str, systems: str, file: str) -> None:
    """Print a study file, or write it where there is none. Raises UsageError for unknown names."""
    text = study_template(_words(workloads), _words(systems), file or "study.toml")
    if not file:
        output(text.rstrip("\n"))
        return
    if Path(file).exists():
        raise UsageError(f"{file} exists already", "name another file, or remove it", code="invalid-option")
    write_text(Path(file), text)
    status(f"{file}. See its runs: sifmark study.plan {file}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
