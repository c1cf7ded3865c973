"""Variants: a study with other systems, fewer runs or other values, as its file says under `[variant.NAME]`."""

from collections.abc import Mapping
from typing import Any

from sifmark.studies.files.study_file import Document, Place, StudyFile

LENGTHS = {"steps", "duration", "epochs"}  # of which a run has one
_REMOVE = "remove"
Run = dict[str, Any]


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
    return [*(in_variant if variant else []), ("run", number, key)]


def _changed(name: str, run: Run, changes: Mapping[str, Any], has_systems: bool) -> Run:
    own = changes.get("run", {}).get(name, {})
    whole = {"repeats"} if "repeats" in changes else set()
    dropped = whole | ({"systems"} if has_systems else set()) | set(changes.get(_REMOVE, ()))
    result = _replaced({key: value for key, value in run.items() if key not in dropped}, changes.get("set", {}))
    result = _replaced(result, {key: value for key, value in own.items() if key != _REMOVE})
    return {**{key: value for key, value in result.items() if key not in own.get(_REMOVE, ())}, "name": name}


def _replaced(run: Run, changes: Mapping[str, Any]) -> Run:
    """Return a run with changes. A length replaces the lengths that it excludes."""
    others = LENGTHS if LENGTHS & changes.keys() else set()
    return {key: value for key, value in run.items() if key not in others} | dict(changes)


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
