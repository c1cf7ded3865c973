"""Variants and `[[run]]` tables of a study file, whose values are checked by the image's own parser."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.core.schemas import read_schema
from sifmark.recipes.names import cards
from sifmark.studies.expand import MOST_RUNS, cells_of
from sifmark.studies.feasibility import problem_anywhere
from sifmark.studies.image_options import parse_value, require_together
from sifmark.studies.study import Group, Scalar, System
from sifmark.studies.study_file import Document, Place, StudyFile, replaced

MOST_TRIED = 500  # cells of a group, of which one has to be possible
_REMOVE = "remove"
Axes = dict[str, tuple[Scalar, ...]]
Run = dict[str, Any]  # a `[[run]]` of a document


@dataclass(frozen=True)
class _Reader:
    """Reads one `[[run]]`, and knows where its keys are."""

    file: StudyFile
    variant: str
    name: str
    number: int  # in the document of the variant
    line: int

    def places(self, key: str) -> Sequence[Place]:
        """Return where a key may be. The first runs of a variant have other numbers in the file."""
        number = next(
            (at for at, run in enumerate(self.file.document["run"]) if run_name(run, at) == self.name), self.number
        )
        return places_of(self.name, number, key, self.variant)

    def error(self, cause: str, remedy: str, key: str) -> UsageError:
        return self.file.error(f"run {self.name}: {cause}", remedy, *self.places(key))


def axis_keys() -> tuple[str, ...]:
    """Return the keys of a run that are axes if they have a list."""
    return tuple(read_schema("study-1.0")["$defs"]["match"]["properties"])


def read_groups(
    file: StudyFile, document: Mapping[str, Any], systems: Sequence[System], variant: str
) -> tuple[Group, ...]:
    """Return the groups of a document. Raises UsageError naming line, field and remedy."""
    groups: dict[str, Group] = {}
    for number, run in enumerate(document["run"]):
        name = run_name(run, number)
        reader = _Reader(file, variant, name, number, 0)
        if name in groups:
            raise reader.error("there is another run of this name", 'give one of them a name: name = "..."', "name")
        groups[name] = _group(reader, run, systems, document.get("repeats", 1))
    return tuple(groups.values())


def _group(reader: _Reader, run: Mapping[str, Any], systems: Sequence[System], repeats: int) -> Group:
    axes = _axes(run)
    for workload in axes["workload"]:
        if workload not in cards():
            places = reader.places("workload")
            raise reader.file.unknown("workload", str(workload), cards(), *places)
    _require_values(reader, axes)
    _require_systems(reader, run, systems)
    group = Group(
        name=reader.name,
        line=reader.file.lines.of(reader.places("name")[-1][:2]),
        axes=axes,
        scaling=run.get("scaling"),
        repeats=run.get("repeats", repeats),
        systems=tuple(run.get("systems", ())),
        except_=tuple(map(_axes, run.get("except", ()))),
        only=tuple(map(_axes, run.get("only", ()))),
    )
    _require_size(reader, group)
    _require_conditions(reader, group)
    _require_possible(reader, group)
    return group


def _axes(table: Mapping[str, Any]) -> Axes:
    keys = axis_keys()
    return {key: _values(value) for key, value in table.items() if key in keys}


def _values(value: Any) -> tuple[Scalar, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _require_values(reader: _Reader, axes: Axes) -> None:
    for key, values in axes.items():
        for value in values:
            try:
                parse_value(key, value)
            except UsageError as error:
                raise reader.error(error.cause, error.remedy, key) from None


def _require_systems(reader: _Reader, run: Mapping[str, Any], systems: Sequence[System]) -> None:
    names = [system.name for system in systems]
    for name in run.get("systems", ()):
        if name not in names:
            raise reader.file.unknown("system", name, names, *reader.places("systems"))


def _require_size(reader: _Reader, group: Group) -> None:
    runs = math.prod(map(len, group.axes.values())) * group.repeats
    if runs > MOST_RUNS:
        lists = ", ".join(f"{len(values)} of {key}" for key, values in group.axes.items() if len(values) > 1)
        cause = f"{runs:,} runs ({lists}, {group.repeats} repeats), and a study has at most {MOST_RUNS:,}"
        raise reader.error(cause, "shorten the lists, or divide the run into several", "name")


def _require_conditions(reader: _Reader, group: Group) -> None:
    """Raise UsageError for conditions that leave nothing, or say nothing, and for options that exclude each other."""
    for key, conditions in (("except", group.except_), ("only", group.only)):
        _require_matching(reader, group, key, conditions)
    cell = next(cells_of(group), None)
    if cell is None:
        raise reader.error("no cell is left by `except` and `only`", "remove one of the conditions", "except")
    if group.scaling == "weak" and "batch_size" not in group.axes:
        raise reader.error("weak scaling needs the batch size of one device", "add batch_size = ...", "scaling")
    try:
        require_together(cell)
    except UsageError as error:
        raise reader.error(error.cause, error.remedy, "name") from None


def _require_matching(
    reader: _Reader, group: Group, key: str, conditions: Iterable[Mapping[str, tuple[Scalar, ...]]]
) -> None:
    """Raise UsageError for a condition on a value that the run does not have; in a variant they may be left over."""
    if reader.variant:
        return
    for condition in conditions:
        for name, values in condition.items():
            missing = [value for value in values if value not in group.axes.get(name, ())]
            if missing:
                has = ", ".join(map(str, group.axes.get(name, ()))) or "none"
                cause = f"{key} names {name} = {missing[0]!r}, which the run does not have"
                raise reader.error(cause, f"the run has {name}: {has}", key)


def _require_possible(reader: _Reader, group: Group) -> None:
    """Raise UsageError if no cell can run on any kind of device: then its options contradict each other."""
    problem = ""
    for number, cell in enumerate(cells_of(group)):
        problem = problem_anywhere(cell)
        if not problem or number == MOST_TRIED:
            return
    raise reader.error(f"none of its cells can run: {problem}", "correct the run", "name")


def apply_variant(file: StudyFile, variant: str) -> Document:
    """Return the document of a variant, or of the whole study for "". Raises UsageError for an unknown one."""
    if not variant:
        return file.document
    variants = file.document.get("variant", {})
    if variant not in variants:
        raise file.unknown("variant", variant, variants)
    changes, runs = variants[variant], named_runs(file.document)
    _require_names(file, variant, changes, runs)
    kept = changes.get("runs", list(runs))
    has_systems = "system" in changes
    document = {**file.document, **{key: changes[key] for key in ("title", "system") if key in changes}}
    document["run"] = [_changed(name, run, changes, has_systems) for name, run in runs.items() if name in kept]
    document["output"] = [shown for output in file.document.get("output", []) if (shown := _shown(output, kept))]
    if "repeats" in changes:
        document["repeats"] = changes["repeats"]
    return document


def named_runs(document: Document) -> dict[str, Run]:
    """Return the runs by name, with a name for those that have none. Of equal names the last counts."""
    return {run_name(run, number): run for number, run in enumerate(document["run"])}


def run_name(run: Run, number: int) -> str:
    """Return the name of a run: its own, or its only workload and task, or its number."""
    words = [run["workload"], run.get("task")]
    single = all(isinstance(word, str) or word is None for word in words)
    return str(run.get("name") or ("-".join(filter(None, words)) if single else f"run-{number + 1}"))


def places_of(name: str, number: int, key: str, variant: str) -> list[Place]:
    """Return where a key of a run may be, from what decides to what is replaced."""
    in_variant: list[Place] = [("variant", variant, "run", name, key), ("variant", variant, "set", key)]
    own: Place = ("run", number, key)
    return [*(in_variant if variant else []), own, ("defaults", key), own]


def _changed(name: str, run: Run, changes: Mapping[str, Any], has_systems: bool) -> Run:
    own = changes.get("run", {}).get(name, {})
    whole = {"repeats"} if "repeats" in changes else set()
    dropped = whole | ({"systems"} if has_systems else set()) | set(changes.get(_REMOVE, ()))
    result = replaced({key: value for key, value in run.items() if key not in dropped}, changes.get("set", {}))
    result = replaced(result, {key: value for key, value in own.items() if key != _REMOVE})
    return {**{key: value for key, value in result.items() if key not in own.get(_REMOVE, ())}, "name": name}


def _shown(output: Document, kept: list[str]) -> Document | None:
    """Return an output with the runs that are left, or None if none is."""
    if "runs" not in output:
        return output
    runs = [name for name in output["runs"] if name in kept]
    return {**output, "runs": runs} if runs else None


def _require_names(file: StudyFile, variant: str, changes: Mapping[str, Any], runs: Mapping[str, Run]) -> None:
    for key in ("runs", "run"):
        for name in changes.get(key, ()):
            if name not in runs:
                raise file.unknown("run", name, runs, ("variant", variant, key, name), ("variant", variant, key))
