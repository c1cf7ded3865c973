"""The study that decides whether the image made a change: kept images, one difference at a time, in turns on one host.

Images that the project builds are reproducible, so that those of before are as good as they were. Between the image of
before and that of after are those kept images whose base, packages and code are each as in one of the two. Their runs
take turns, so that what moves a session moves all alike.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tomlkit

from sifmark.core.errors import SifmarkError
from sifmark.core.paths import import_shared
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, LOCK, RECIPE, REVISION
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.gate import Gate
from sifmark.results.comparison.intervals import Ratio, variance
from sifmark.results.comparison.query import Query
from sifmark.results.load import load_results
from sifmark.studies.acceptance.power import power_of
from sifmark.studies.groups import axis_keys
from sifmark.studies.history.changes import Change, History
from sifmark.studies.history.explain import IMAGE_KEY, KeptImage, sides_of
from sifmark.studies.history.series import HistoryRun

BEFORE = "before"
AFTER = "after"
POWER, CONFIDENCE = 0.9, 0.95
FEWEST, MOST = 3, 50  # repeats of each image
_PARTS = {BASE_DIGEST: "base", LOCK: "packages", REVISION: "code"}  # of an image, by the labels that identify them
_SPREAD = 0.01  # standard deviation of repeats where the history has only one of each session
_DROPPED = ("all", "site", "output", "repeat", "replicas", "stages", "find_max_batch", "threads_from")
_WHOLE = re.compile(r"-?\d{1,15}")


@dataclass(frozen=True)
class Bisection:
    """A study of images between that of before and that of after a change."""

    history: History
    change: Change
    images: tuple[tuple[str, KeptImage, tuple[str, ...]], ...]  # name of its system, and the parts that are as after
    repeats: int
    text: str  # of the study file


@dataclass(frozen=True)
class Step:
    """What the study says of an image: its ratio to that of before, and whether it has the change."""

    system: str
    parts: tuple[str, ...]
    ratio: Ratio
    has_change: bool | None  # None: that cannot be told


def bisection_of(history: History, change: Change, kept: Mapping[str, KeptImage]) -> Bisection:
    """Return the study that decides about a change.

    Raises SifmarkError if both sides have the same image, or if one of the two is not kept.
    """
    before, after = sides_of(history, change)
    keys = [_key_of(side) for side in (before, after)]
    if keys[0] == keys[1] or None in keys:
        cause = "no study of images can decide: both sides of the change have the same image"
        remedy = "--explain names what else differs; change that on one node, and measure again"
        raise SifmarkError(cause, remedy, code="bisection-impossible")
    missing = [str(key) for key in keys if key not in kept]
    if missing:
        cause = f"the image with the build key {missing[0]} is not kept"
        remedy = "name the folder that it is in: --images FOLDER; registry.pull fetches it, if it was pushed"
        raise SifmarkError(cause, remedy, code="bisection-impossible")
    first, last = (kept[str(key)] for key in keys)
    images = tuple(_between(first, last, kept))
    repeats = _repeats(history, change)
    return Bisection(history, change, images, repeats, _study(after[-1], images, repeats, history))


def _key_of(side: Sequence[HistoryRun]) -> Any:
    keys = [run.environment.get(IMAGE_KEY) for run in side]
    return max(set(keys), key=keys.count)


def _between(
    first: KeptImage, last: KeptImage, kept: Mapping[str, KeptImage]
) -> Iterator[tuple[str, KeptImage, tuple[str, ...]]]:
    """Yield the image of before, those with some parts as after, and that of after."""
    changed = [label for label in _PARTS if first.labels.get(label) != last.labels.get(label)]
    yield BEFORE, first, ()
    mixed = []
    for image in kept.values():
        if image.labels.get(RECIPE) != last.labels.get(RECIPE) or image.key in (first.key, last.key):
            continue
        values = {label: image.labels.get(label) for label in _PARTS}
        if all(values[label] in (first.labels.get(label), last.labels.get(label)) for label in _PARTS):
            parts = tuple(_PARTS[label] for label in changed if values[label] == last.labels.get(label))
            if 0 < len(parts) < len(changed):
                mixed.append(("-".join(("with", *parts)), image, parts))
    named: dict[str, tuple[str, KeptImage, tuple[str, ...]]] = {}
    for each in sorted(mixed, key=lambda entry: (len(entry[2]), entry[1].labels[BUILD_KEY])):
        named.setdefault(each[0], each)
    yield from named.values()
    yield AFTER, last, tuple(_PARTS[label] for label in changed)


def _repeats(history: History, change: Change) -> int:
    """Return how often each image has to run, so that the change is told from none, with the power."""
    sessions = [session.runs for session in history.series.sessions if len(session.runs) > 1]
    samples = [[math.log(run.value) for run in runs] for runs in sessions]
    pooled = fmean(map(variance, samples)) if samples else math.log1p(_SPREAD) ** 2
    distance = abs(math.log(change.ratio.value or 1.0)) / 2  # the limit is half way
    for count in range(FEWEST, MOST):
        if power_of(distance, math.sqrt(2 * pooled / count), 2 * count - 2, CONFIDENCE) >= POWER:
            return count
    return MOST


def _study(
    run: HistoryRun, images: Sequence[tuple[str, KeptImage, tuple[str, ...]]], repeats: int, history: History
) -> str:
    keys, more = keys_of(*_asked(run))
    series = history.series
    title = f"Which part of the image changed {series.title.partition(',')[0]} on {series.system}"
    systems = [
        {
            "name": name,
            "title": ", ".join(parts) or BEFORE,
            "image": image.address,
            **({"arguments": more} if more else {}),
        }
        for name, image, parts in images
    ]
    return tomlkit.dumps({"title": title, "repeats": repeats, "system": systems, "run": [{"name": "bisect", **keys}]})


def _asked(run: HistoryRun) -> tuple[str, list[str]]:
    """Return the workload of a run and the arguments of its image, which its result has."""
    observation = run.observation
    for result in load_results(observation.file):
        if result.document.get("id") == observation.id:
            return result.document["workload"]["name"], list(map(str, result.document["provenance"]["command"]))
    raise SifmarkError(f"{observation.file} was changed meanwhile", "do it again", code="result-missing")


def keys_of(workload: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return a command of an image as keys of a run in a study, and the words that no key stands for.

    The command need not name its workload: the image's name may have said it.
    """
    options = import_shared("planning.arguments").parse(list(words))
    keys: dict[str, Any] = {"workload": options.workload or workload}
    more: list[str] = []
    devices = int((options.replicas or 1) * (options.stages or 1))
    for name, value in _flags(words):
        key = name.replace("-", "_")
        if key in _DROPPED:
            continue
        if key in axis_keys():
            keys[key] = True if value is None else int(value) if _WHOLE.fullmatch(value) else value
        else:
            more += [f"--{name}"] if value is None else [f"--{name}", value]
    if getattr(options, "find_max_batch", False):
        keys["batch_size"] = "max"
    return keys | ({"devices": devices} if devices > 1 else {}), more


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the options among words with their values; None for one without."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        takes_next = not equals and rest and not rest[0].startswith("--")
        yield name, value if equals else rest.pop(0) if takes_next else None


def decide(bisection: Bisection, folders: Sequence[str], allowed: Sequence[str] = ()) -> list[Step]:
    """Return what the results of the study say of each image but that of before."""
    metric = bisection.history.series.metric
    query = Query(metrics=(metric,), baseline=("site", BEFORE), allowed=frozenset(allowed))
    comparison = compare_results(folders, query)
    ratios = {row.fields.get("site"): row.ratios.get(metric) for row in comparison.compared}
    return [
        Step(
            name,
            parts,
            ratios.get(name) or Ratio(None, reason="no result"),
            _has_change(bisection.change, ratios.get(name)),
        )
        for name, _, parts in bisection.images
        if name != BEFORE
    ]


def _has_change(change: Change, ratio: Ratio | None) -> bool | None:
    """Return whether a ratio to the image of before is more than half of the change, or less, by its whole interval."""
    factor = change.ratio.value or 1.0
    half = math.sqrt(factor)
    kept = Gate(half, above=factor > 1).keeps(ratio)
    return None if kept is None else not kept


def conclusion(steps: Sequence[Step]) -> str:
    """Return what the steps come to, in words."""
    whole = next((step for step in steps if step.system == AFTER), None)
    if whole is None or whole.has_change is None:
        return "cannot tell whether the image made the change: repeat the study on another day"
    if not whole.has_change:
        return "the image did not make the change: both are equally fast today; look at driver, firmware and host"
    alone = [step for step in steps if len(step.parts) == 1 and step.system != AFTER]
    causes = [step.parts[0] for step in alone if step.has_change]
    if causes:
        return f"the image made the change: with its {' or its '.join(causes)} alone it is there"
    if len(whole.parts) == 1:
        return f"the image made the change, by its {whole.parts[0]}"
    if not whole.parts:
        return "the image made the change, and its labels do not say by what"
    parts = ", ".join(whole.parts)
    return f"the image made the change; which of {parts} is not known: no kept image with one of them alone has it"


def commits_of(bisection: Bisection) -> str:
    """Return the command that lists the commits between both images; nothing if their code is the same or unknown."""
    (_, first, _), *_, (_, last, _) = bisection.images
    old, new = (image.labels.get(REVISION, "").removesuffix("-dirty") for image in (first, last))
    return f"git log {old[:12]}..{new[:12]}" if old and new and old != new else ""


def command_of(file: Path) -> str:
    """Return the command that runs the study."""
    return f"sifmark study.run {shlex.quote(str(file))}"
