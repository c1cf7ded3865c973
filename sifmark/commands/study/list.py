"""The study.list command: studies with what they ask, and how many runs they have."""

from typing import Any

from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import status, warn
from sifmark.core.errors import SifmarkError
from sifmark.studies.expand import cells_of
from sifmark.studies.load import load_study, variant_names
from sifmark.studies.study import Study
from sifmark.studies.study_file import study_files


def show_studies(form: str) -> None:
    """Print the studies by name. A file with errors is reported, and the others are listed."""
    rows = []
    for name, file in sorted(study_files().items()):
        try:
            rows.append(_row(load_study(str(file)), variant_names(str(file))))
        except SifmarkError as error:
            warn(f"{name} is left out: {error}")
    columns = ("study", "title", "runs", "systems", "variants")
    cells = [[row["study"], row["title"], row["runs"], len(row["systems"]), row["variants"]] for row in rows]
    answer(form, {"studies": rows}, Table(columns, cells))
    if form == TABLE:
        status("The runs of one: sifmark study.plan STUDY --system NAME:IMAGE, or --variant small")


def _row(study: Study, variants: tuple[str, ...]) -> dict[str, Any]:
    return {
        "study": study.name,
        "title": study.title,
        "file": str(study.file),
        "questions": list(study.questions),
        "source": study.source.url if study.source else None,
        "runs": sum(sum(1 for _ in cells_of(group)) * group.repeats for group in study.groups),  # on one system
        "systems": [system.name for system in study.systems],
        "variants": list(variants),
        "outputs": [output.name for output in study.outputs],
        "cannot_repeat": [{"part": each.part, "reason": each.reason} for each in study.limitations],
    }
