"""Loading of studies: all errors of a file at once, each with the line, the field and a remedy."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.core.schemas import read_schema
from sifmark.engines.binds import parse_binds
from sifmark.recipes.recipe import recipe_names
from sifmark.studies.folder import RESERVED, folder_of, system_folders
from sifmark.studies.groups import apply_variant, axis_keys, named_runs, read_groups
from sifmark.studies.images import is_recipe_or_place
from sifmark.studies.study import Group, Limitation, Output, Source, Study, System
from sifmark.studies.study_file import StudyFile, find_study, read_study_file, study_names
from sifmark.studies.study_schema import Place

__all__ = ["load_study", "study_names", "variant_names"]

SYSTEM = "system"  # what rows, lines and axes may stand for besides the keys of runs
_EPOCH = re.compile(r"epochs\.[1-9][0-9]*(\.throughput)?")


def load_study(name_or_path: str, variant: str = "") -> Study:
    """Read a study by its name or path. Raises UsageError with all that is wrong with its file."""
    file = read_study_file(find_study(name_or_path))
    document = apply_variant(file, variant)
    _check_systems(file, document, variant)
    groups = read_groups(file, document, variant)
    _check_outputs(file, document)
    file.require_valid()
    source = document.get("source")
    return Study(
        name=f"{file.path.stem}-{variant}" if variant else file.path.stem,
        title=f"{document['title']} ({variant})" if variant else document["title"],
        file=file.path,
        questions=tuple(document.get("questions", ())),
        source=Source(**source) if source else None,
        systems=tuple(map(_system, document.get("system", ()))),
        groups=groups,
        outputs=tuple(_output(table, groups) for table in document.get("output", ())),
        limitations=tuple(map(_limitation, document.get("cannot_repeat", ()))),
        variant=variant,
    )


def variant_names(name_or_path: str) -> tuple[str, ...]:
    """Return the names of the variants of a study. Raises UsageError if its file is invalid."""
    file = read_study_file(find_study(name_or_path))
    file.require_valid()
    return tuple(file.document.get("variant", {}))


def _check_systems(file: StudyFile, document: Mapping[str, Any], variant: str) -> None:
    own = "system" in file.document.get("variant", {}).get(variant, {})
    prefix: Place = ("variant", variant, "system") if own else ("system",)
    names = set(RESERVED)
    for number, table in enumerate(document.get("system", ())):
        place, name, image = (*prefix, number), table.get("name"), table.get("image")
        with file.checks():
            if name and name in names:
                cause = f"system {name}: there is another of this name, or a folder of sifmark's own has it"
                raise file.error(cause, "choose another name", (*place, "name"))
            names.add(name)
        with file.checks():
            if image and not is_recipe_or_place(image):
                raise file.unknown("recipe", image, recipe_names(), (*place, "image"))
        with file.checks():
            try:
                parse_binds(table.get("bind", ()))
            except UsageError as error:
                raise file.error(f"system {name}: {error.cause}", error.remedy, (*place, "bind")) from None


def _limitation(table: Mapping[str, Any]) -> Limitation:
    return Limitation(table["part"], table["reason"], tuple(table.get("figures", ())))


def _system(table: Mapping[str, Any]) -> System:
    lists = {"bind": parse_binds(table.get("bind", ())), "arguments": tuple(table.get("arguments", ()))}
    return System(**{**table, **lists})


def _check_outputs(file: StudyFile, document: Mapping[str, Any]) -> None:
    runs = list(named_runs(dict(document)))
    fields = (*axis_keys(), SYSTEM)
    names = set()
    for number, table in enumerate(document.get("output", ())):
        place, name = _output_place(file, table, number), table.get("name")
        with file.checks():
            if name and name in names:
                raise file.error(f"there is another output {name}", "give it a name of its own", (*place, "name"))
        names.add(name)
        if file.knows_names("run"):
            _check_known(file, "run", table.get("runs", ()), runs, (*place, "runs"))
        if not _EPOCH.fullmatch(table.get("y", "")):
            _check_known(file, "metric", [table["y"]] if "y" in table else (), metric_names(), (*place, "y"))
        _check_known(file, "key of runs", [table["x"]] if "x" in table else (), fields, (*place, "x"))
        _check_known(file, "key of runs", table.get("series", ()), fields, (*place, "series"))


def _output(table: Mapping[str, Any], groups: Sequence[Group]) -> Output:
    return Output(
        name=table["name"],
        title=table["title"],
        kind=table["kind"],
        groups=tuple(table.get("runs", [group.name for group in groups])),
        x=table["x"],
        y=table["y"],
        series=tuple(table.get("series", (SYSTEM,))),
        published=table.get("published", ""),
    )


def _output_place(file: StudyFile, table: Mapping[str, Any], number: int) -> Place:
    """Return where an output is in the file: a variant may have left out earlier ones."""
    names = [each.get("name") for each in file.document["output"]]
    return ("output", number if names.count(table.get("name")) > 1 else names.index(table.get("name")))


def _check_known(file: StudyFile, kind: str, names: Iterable[str], existing: Iterable[str], place: Place) -> None:
    for name in names:
        with file.checks():
            if name not in existing:
                raise file.unknown(kind, name, existing, place)


@cache
def metric_names() -> tuple[str, ...]:
    """Return the metrics of results, phases among them; not `epochs.N`."""
    fields = read_schema("result-1.2")["properties"]
    phases = (f"phases.{name}" for name in fields["phases"]["properties"])
    return (*fields["metrics"]["properties"], *phases)


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
