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
from sifmark.studies.study import Group, Scalar
from sifmark.studies.study_file import Document, StudyError, StudyFile, replaced
from sifmark.studies.study_schema import Place

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

    def places(self, key: str) -> Sequence[Place]:
        """Return where a key may be. The first runs of a variant have other numbers in the file."""
        number = next(
            (at for at, run in enumerate(self.file.document["run"]) if run_name(run, at) == self.name), self.number
        )
        return places_of(self.name, number, key, self.variant)

    def error(self, cause: str, remedy: str, key: str) -> StudyError:
        return self.file.error(f"run {self.name}: {cause}", remedy, *self.places(key))

    @property
    def is_whole(self) -> bool:
        """Whether the schema refuses nothing of the run: only then it is known which cells it has."""
        parts = (self.places("")[-1][:2], ("defaults",), ("variant", self.variant))
        return not any(self.file.is_refused(*part) for part in parts)


def axis_keys() -> tuple[str, ...]:
    """Return the keys of a run that are axes if they have a list."""
    return tuple(read_schema("study-1.0")["$defs"]["match"]["properties"])


def read_groups(file: StudyFile, document: Mapping[str, Any], variant: str) -> tuple[Group, ...]:
    """Return the groups of a document; what is wrong with them is among the problems of the file."""
    groups: dict[str, Group] = {}
    names = [system["name"] for system in document.get("system", ()) if "name" in system]
    for number, run in enumerate(document["run"]):
        if "workload" not in run:  # which the schema refuses
            continue
        name = run_name(run, number)
        reader = _Reader(file, variant, name, number)
        with file.checks():
            if name in groups:
                raise reader.error("there is another run of this name", 'give one of them a name: name = "..."', "name")
        groups[name] = group = _group(reader, run, document.get("repeats", 1))
        found = len(file.problems)
        _check_values(reader, group.axes)
        if file.knows_names("system"):
            _check_systems(reader, run, names)
        if found == len(file.problems) and reader.is_whole:
            with file.checks():
                _require_size(reader, group)
                _require_conditions(reader, group)
                _require_possible(reader, group)
    return tuple(groups.values())


def _group(reader: _Reader, run: Mapping[str, Any], repeats: int) -> Group:
    return Group(
        name=reader.name,
        line=reader.file.lines.of(reader.places("name")[-1][:2]),
        axes=_axes(run),
        scaling=run.get("scaling"),
        repeats=run.get("repeats", repeats),
        systems=tuple(run.get("systems", ())),
        except_=tuple(map(_axes, run.get("except", ()))),
        only=tuple(map(_axes, run.get("only", ()))),
    )


def _axes(table: Mapping[str, Any]) -> Axes:
    keys = axis_keys()
    return {key: _values(value) for key, value in table.items() if key in keys}


def _values(value: Any) -> tuple[Scalar, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _check_values(reader: _Reader, axes: Mapping[str, tuple[Scalar, ...]]) -> None:
    for key, value in ((key, value) for key, values in axes.items() for value in values):
        with reader.file.checks():
            if key == "workload" and value not in cards():
                raise reader.file.unknown("workload", str(value), cards(), *reader.places(key))
            try:
                parse_value(key, value)
            except UsageError as error:
                raise reader.error(error.cause, error.remedy, key) from None


def _check_systems(reader: _Reader, run: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in run.get("systems", ()):
        with reader.file.checks():
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
    """Return the document of a variant, or of the whole study for "" and for one that the file does not have."""
    variants, runs = file.document.get("variant", {}), named_runs(file.document)
    if file.knows_names("run"):
        for name, changes in variants.items():
            _check_names(file, name, changes, runs)
    if variant and variant not in variants and not file.is_refused("variant", variant):
        file.problems.append(file.unknown("variant", variant, variants))
    if variant not in variants:
        return file.document
    changes = variants[variant]
    kept = changes.get("runs", list(runs))
    has_systems = "system" in changes
    document = {**file.document, **{key: changes[key] for key in ("title", "questions", "system") if key in changes}}
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
    words = [run.get("workload"), run.get("task")]
    single = all(isinstance(word, str) or word is None for word in words) and words[0]
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


def _check_names(file: StudyFile, variant: str, changes: Mapping[str, Any], runs: Mapping[str, Run]) -> None:
    for key in ("runs", "run"):
        for name in changes.get(key, ()):
            if name not in runs:
                problem = file.unknown("run", name, runs, ("variant", variant, key, name), ("variant", variant, key))
                file.problems.append(problem)
