"""The plan of a study: its runs on the chosen systems with their states and predicted times."""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.core.errors import UsageError, nearest_names, unknown_name
from sifmark.core.settings import Settings
from sifmark.recipes.recipe import recipe_names
from sifmark.studies.estimate import REFUSED_SECONDS, Estimate, Estimates, estimate
from sifmark.studies.events import Started
from sifmark.studies.evidence import read_evidence
from sifmark.studies.expand import expand
from sifmark.studies.feasibility import ResolvedConfig, resolve_config
from sifmark.studies.folder import RESERVED, folder_of, result_path
from sifmark.studies.groups import axis_keys
from sifmark.studies.image_options import Division, batch_of_cell, division_of
from sifmark.studies.images import SystemImage, find_image_of, is_recipe_or_place
from sifmark.studies.load import load_study
from sifmark.studies.outcomes import ResultEntry
from sifmark.studies.states import status_of
from sifmark.studies.study import NOTHING, Cause, Command, PlannedRun, Reason, Run, RunState, Study, StudyPlan, System
from sifmark.studies.study_file import is_name

_OTHER_KEYS = ("system", "run", "group", "scaling", "repeat")  # of --only, besides those of cells


@dataclass(frozen=True)
class Request:
    """Which runs of which study are meant, as the options of all study commands say it."""

    study: str  # name or path
    variant: str = ""
    systems: tuple[str, ...] = ()  # NAME or NAME:IMAGE; empty: those of the study
    results: Path = Path("results")
    only: tuple[str, ...] = ()  # "workload=resnet50 batch_size=64": runs that match one of these
    retry: str = ""  # failed, or how runs failed: they are to be done again

    def command(self, verb: str, *more: str) -> str:
        """Return another command about the same runs, as a user can paste it."""
        words = ["sifmark", verb, self.study, *(["--variant", self.variant] if self.variant else [])]
        for option, values in (("--system", self.systems), ("--only", self.only)):
            words += [word for value in values for word in (option, value)]
        if self.results != Request.results:
            words += ["--results", str(self.results)]
        return shlex.join([*words, *more])


@dataclass(frozen=True, slots=True)
class _RunPrediction:
    """What is predicted of a run before it starts: its configuration, time and memory, and how it will fail."""

    config: ResolvedConfig
    estimate: Estimate
    problem: str  # why it cannot run
    remark: Reason = NOTHING  # how it will end


def plan_study(request: Request, settings: Settings) -> StudyPlan:
    """Return the plan of a study. Raises SifmarkError naming what is wrong with the request or the file."""
    study = load_study(request.study, request.variant)
    systems = choose_systems(study, request.systems)
    folder = folder_of(study, request.results)
    images = {system.name: find_image_of(system, settings) for system in systems}
    image_keys = {system.name: images[system.name].key_of(system) for system in systems}
    runs, shared = _by_key(_matching(expand(study, systems), request.only), image_keys)
    planned = tuple(_planned(runs, systems, images, folder, request.retry))
    identities = {name: image.identity for name, image in images.items()}
    reasons = {name: image.reason for name, image in images.items() if image.reason}
    return StudyPlan(replace(study, systems=systems), folder, identities, planned, reasons, shared)


def choose_systems(study: Study, texts: Sequence[str]) -> tuple[System, ...]:
    """Return the systems that are named as NAME or NAME:IMAGE; all of the study if none is. Raises UsageError."""
    own = {system.name: system for system in study.systems}
    chosen = [_system(text, own) for text in texts] or list(own.values())
    if not chosen:
        cause = f"{study.name} names no system of its own"
        raise UsageError(cause, "name one, with its image: --system here:cpu", code="argument-missing")
    return tuple({system.name: system for system in chosen}.values())


def _system(text: str, own: Mapping[str, System]) -> System:
    name, colon, image = text.partition(":")
    if not colon and name not in own:
        image_remedy = f"name its image: --system {name or 'here'}:cpu"
        remedy = f"{nearest_names(name, own)}; or {image_remedy}" if own else image_remedy
        raise UsageError(f"no system {name!r}", remedy, code="unknown-name")
    if not colon:
        return own[name]
    if name in RESERVED or not is_name(name):
        raise UsageError(f"--system {text}: that is no name of a system", "--system here:cpu", code="invalid-option")
    if not is_recipe_or_place(image):
        raise unknown_name("recipe", image, recipe_names())
    return replace(own[name], image=image) if name in own else System(name, image)


def _matching(runs: Sequence[Run], texts: Iterable[str]) -> Sequence[Run]:
    """Return the runs that match one of the conditions. Raises UsageError for an unknown key, and if none matches."""
    conditions = [_condition(text) for text in texts]
    if not conditions:
        return runs
    matching = [run for run in runs if any(_matches(run, condition) for condition in conditions)]
    if not matching:
        cause = f"no run matches --only {' or --only '.join(map(repr, texts))}"
        raise UsageError(cause, "`sifmark study.plan` without --only shows all", code="invalid-option")
    return matching


def _condition(text: str) -> dict[str, tuple[str, ...]]:
    keys, condition = tuple(dict.fromkeys((*axis_keys(), *_OTHER_KEYS))), {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or key not in keys:
            remedy = f"write KEY=VALUE: {nearest_names(key, keys)}"
            raise UsageError(f"--only {text!r}: no key {key!r}", remedy, code="invalid-option")
        condition[key] = tuple(value.lower().split(","))
    if not condition:
        raise UsageError("--only is empty", "for example --only workload=resnet50", code="invalid-option")
    return condition


def _matches(run: Run, condition: Mapping[str, tuple[str, ...]]) -> bool:
    fields = {"system": run.system, "group": run.group, "run": run.group, "devices": run.devices, "nodes": run.nodes}
    fields |= {**run.cell, "repeat": run.repeat}
    return all(str(fields.get(key, "")).lower() in values for key, values in condition.items())


def _by_key(runs: Iterable[Run], images: Mapping[str, str]) -> tuple[dict[str, Run], tuple[tuple[str, Run], ...]]:
    """Return the runs by key, and those that have the key of an earlier one: the same command for another cell."""
    first: dict[str, Run] = {}
    shared = []
    for run in runs:
        key = run.key(images[run.system])
        if first.setdefault(key, run) is not run:
            shared.append((key, run))
    return first, tuple(shared)


def _planned(
    runs: Mapping[str, Run], systems: Sequence[System], images: Mapping[str, SystemImage], folder: Path, retry: str
) -> Iterator[PlannedRun]:
    """Yield runs with their states and what they take."""
    by_name = {system.name: system for system in systems}
    prediction_of = _predictions(by_name, images)
    asked = [_asked(run, key, images[run.system], folder) for key, run in runs.items()]
    rows = [(each, found, prediction_of(each.run)) for each, found in zip(asked, read_evidence(asked), strict=True)]
    estimates = _learned((each.run, found.result, prediction) for each, found, prediction in rows)
    for planned, evidence, prediction in rows:
        run, entry = planned.run, evidence.result
        status = status_of(
            evidence,
            obstacle=prediction.problem,
            remark=prediction.remark or _missing(images[run.system]),
            retry=retry,
        )
        measured = entry if entry and status.state in (RunState.DONE, RunState.FAILED) else None
        last = evidence.log.last if status.state is RunState.RUNNING else None
        started = last if isinstance(last, Started) else None
        yield replace(
            planned,
            state=status.state,
            reason=status.reason,
            job=status.job,
            seconds=measured.seconds if measured else _seconds(run, prediction, estimates, started),
            memory_gib=measured.memory_gib if measured else prediction.estimate.memory_gib,
            batch_size=batch_of_cell(run, measured.batch_size) if measured else None,
        )


def _missing(image: SystemImage) -> Reason:
    return Reason(Cause.IMAGE_MISSING, image.reason) if image.reason else NOTHING


def _asked(run: Run, key: str, image: SystemImage, folder: Path) -> PlannedRun:
    """Return a run whose state is not determined yet."""
    return PlannedRun(run, key, result_path(folder, run.system, key), RunState.TO_DO, image=image.identity)


def _predictions(systems: Mapping[str, System], images: Mapping[str, SystemImage]) -> Callable[[Run], _RunPrediction]:
    """Return what is known of a run, worked out once for all of its repeats."""
    kept: dict[Command, _RunPrediction] = {}

    def prediction_of(run: Run) -> _RunPrediction:
        if run.command not in kept:
            kept[run.command] = _predict(run, systems[run.system], images[run.system])
        return kept[run.command]

    return prediction_of


def _predict(run: Run, system: System, image: SystemImage) -> _RunPrediction:
    division = division_of(run.cell, system)
    problem = _place_problem(division, system)
    if problem or image.target is None:
        return _RunPrediction(ResolvedConfig(), Estimate(), problem)
    config = resolve_config(run.cell, division, image.target, system.arguments)
    if config.problem:
        return _RunPrediction(config, Estimate(), config.problem)
    needs = estimate(config)
    if system.memory_gib is None or needs.memory_gib is None or needs.memory_gib <= system.memory_gib:
        return _RunPrediction(config, needs, "")
    sizes = f"at least {needs.memory_gib:.1f} GiB, and a device has {system.memory_gib:g}"
    remark = Reason(Cause.EXPECTED, sizes)
    return _RunPrediction(config, replace(needs, seconds=REFUSED_SECONDS), "", remark)


def _place_problem(division: Division, system: System) -> str:
    """Return why a system has no place for so many devices or nodes."""
    nodes = system.nodes or 1
    if system.nodes is not None and division.nodes > nodes:
        return f"{division.nodes} nodes, and {system.name} has {nodes}"
    if division.devices % division.nodes:
        return f"{division.devices} devices are not equally many on {division.nodes} nodes"
    if system.devices is not None and division.devices > system.devices * min(nodes, division.nodes):
        return f"{division.devices} devices, and {system.name} has {system.devices} on each of {nodes} nodes"
    return ""


def _learned(rows: Iterable[tuple[Run, ResultEntry | None, _RunPrediction]]) -> Estimates:
    """Return what the completed runs say of how long others take."""
    estimates = Estimates()
    for run, entry, prediction in rows:
        if entry is not None and entry.state is RunState.DONE and entry.seconds is not None:
            seconds = entry.seconds + entry.setup_seconds
            estimates.learn(run, seconds, prediction.estimate.seconds, is_whole=not entry.reason)
    return estimates


def _seconds(run: Run, prediction: _RunPrediction, estimates: Estimates, started: Started | None) -> float | None:
    """Return how long a run takes; one that has started, from now on."""
    expected = prediction.estimate.seconds
    if not (prediction.problem or prediction.remark):
        expected = estimates.seconds(run, expected)
    if started is None or expected is None:
        return expected
    return max(0.0, expected - (time.time() - started.time))
