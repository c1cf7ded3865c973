"""Loading of studies: every error names the line, the field and a remedy."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.core.schemas import read_schema
from sifmark.recipes.recipe import recipe_names
from sifmark.studies.folder import RESERVED, folder_of, system_folders
from sifmark.studies.groups import apply_variant, axis_keys, read_groups
from sifmark.studies.images import is_recipe_or_place
from sifmark.studies.study import Group, Limitation, Output, Source, Study, System
from sifmark.studies.study_file import Place, StudyFile, find_study, read_study_file, study_names

__all__ = ["load_study", "study_names", "variant_names"]

# What rows, lines and axes may stand for besides the keys of runs.
MORE_FIELDS = ("system", "nodes", "devices", "size", "step", "epoch", "phase", "percentile")
DERIVED_METRICS = ("efficiency", "speedup")  # of a group of results, from their throughput
_EPOCH = re.compile(r"epochs\.[1-9][0-9]*(\.throughput)?")


def load_study(name_or_path: str, variant: str = "") -> Study:
    """Read a study by its name or path. Raises UsageError naming file, line, field and remedy."""
    file = read_study_file(find_study(name_or_path))
    document = apply_variant(file, variant)
    systems = _systems(file, document, variant)
    groups = read_groups(file, document, systems, variant)
    source = document.get("source")
    return Study(
        name=f"{file.path.stem}-{variant}" if variant else file.path.stem,
        title=f"{document['title']} ({variant})" if variant else document["title"],
        file=file.path,
        questions=tuple(document.get("questions", ())),
        source=Source(**source) if source else None,
        systems=systems,
        groups=groups,
        outputs=_outputs(file, document, groups),
        limitations=tuple(map(_limitation, document.get("cannot_repeat", ()))),
        variant=variant,
    )


def variant_names(name_or_path: str) -> tuple[str, ...]:
    """Return the names of the variants of a study. Raises UsageError if its file is invalid."""
    return tuple(read_study_file(find_study(name_or_path)).document.get("variant", {}))


def _systems(file: StudyFile, document: Mapping[str, Any], variant: str) -> tuple[System, ...]:
    own = "system" in file.document.get("variant", {}).get(variant, {})
    prefix: Place = ("variant", variant, "system") if own else ("system",)
    systems: dict[str, System] = {}
    for number, table in enumerate(document.get("system", ())):
        place = (*prefix, number)
        if table["name"] in systems or table["name"] in RESERVED:
            cause = f"system {table['name']}: there is another of this name, or a folder of sifmark's own has it"
            raise file.error(cause, "choose another name", (*place, "name"))
        if not is_recipe_or_place(table["image"]):
            raise file.unknown("recipe", table["image"], recipe_names(), (*place, "image"))
        systems[table["name"]] = _system(table)
    return tuple(systems.values())


def _limitation(table: Mapping[str, Any]) -> Limitation:
    return Limitation(table["part"], table["reason"], tuple(table.get("figures", ())))


def _system(table: Mapping[str, Any]) -> System:
    lists = {key: tuple(table[key]) for key in ("bind", "arguments") if key in table}
    return System(**{**table, **lists})


def _outputs(file: StudyFile, document: Mapping[str, Any], groups: Sequence[Group]) -> tuple[Output, ...]:
    names = [group.name for group in groups]
    outputs: dict[str, Output] = {}
    for number, table in enumerate(document.get("output", ())):
        place = _output_place(file, table, number)
        if table["name"] in outputs:
            raise file.error(f"there is another output {table['name']}", "give it a name of its own", (*place, "name"))
        _require_known(file, "run", table.get("runs", ()), names, (*place, "runs"))
        if not _EPOCH.fullmatch(table["y"]):
            _require_known(file, "metric", [table["y"]], metric_names(), (*place, "y"))
        fields = (*axis_keys(), *MORE_FIELDS)
        _require_known(file, "key of runs", [table["x"]], fields, (*place, "x"))
        _require_known(file, "key of runs", table.get("series", ()), fields, (*place, "series"))
        outputs[table["name"]] = Output(
            name=table["name"],
            title=table["title"],
            kind=table["kind"],
            groups=tuple(table.get("runs", names)),
            x=table["x"],
            y=table["y"],
            series=tuple(table.get("series", ("system",))),
            published=table.get("published", ""),
        )
    return tuple(outputs.values())


def _output_place(file: StudyFile, table: Mapping[str, Any], number: int) -> Place:
    """Return where an output is in the file: a variant may have left out earlier ones."""
    names = [each["name"] for each in file.document["output"]]
    return ("output", number if names.count(table["name"]) > 1 else names.index(table["name"]))


def _require_known(file: StudyFile, kind: str, names: Iterable[str], existing: Iterable[str], place: Place) -> None:
    for name in names:
        if name not in existing:
            raise file.unknown(kind, name, existing, place)


@cache
def metric_names() -> tuple[str, ...]:
    """Return the metrics of results, phases among them, and those that are derived from several; not `epochs.N`."""
    fields = read_schema("result-1.2")["properties"]
    phases = (f"phases.{name}" for name in fields["phases"]["properties"])
    return (*fields["metrics"]["properties"], *phases, *DERIVED_METRICS)


def result_paths(paths: Sequence[str], study: str, results: str, variant: str = "") -> tuple[str, ...]:
    """Return the paths of results, or the folders of a study's systems. Raises UsageError for both, or none."""
    remedy = "name files or folders of results, or a study: --study NAME"
    if paths and study:
        raise UsageError("results are given twice: by path, and by --study", remedy, code="invalid-option")
    if not paths and not study:
        raise UsageError("no results are given", remedy, code="argument-missing")
    return tuple(paths) or _of_study(study, Path(results), variant)


def _of_study(study: str, results: Path, variant: str) -> tuple[str, ...]:
    folder = folder_of(load_study(study, variant), results)
    if folders := system_folders(folder):
        return tuple(map(str, folders))
    measured = [name for name in variant_names(study) if system_folders(folder_of(load_study(study, name), results))]
    remedy = f"run it first: sifmark study.run {shlex.quote(study)}{f' --variant {variant}' if variant else ''}"
    if measured and not variant:
        remedy = f"variants of it have results: --variant {' or '.join(measured)}; or {remedy}"
    raise UsageError(f"the study has no results in {folder}", remedy, code="result-missing")
