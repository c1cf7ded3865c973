"""What may explain a change of performance: the facts that differ between its sides, by how well they separate them.

The separation by a fact that results state is the total variation distance of its values before and after: 1 if no
value occurs on both sides, 0 if all occur as often on both. That by what is measured is the size of Cliff's delta
(Psychological Bulletin 114, 1993): 1 if all numbers of one side are above all of the other.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine
from sifmark.recipes.labels import BUILD_KEY, RECIPE
from sifmark.results.catalogue import column_of
from sifmark.studies.history.changes import Change, History
from sifmark.studies.history.environment import Environment
from sifmark.studies.history.series import HistoryRun

LEAST = 0.5  # separation of a fact that is worth mentioning
IMAGE_KEY = column_of("provenance.image.build_key")
PACKAGE, MEASURED, DRIVER, FIRMWARE = "package", "measured", "driver", "firmware"
# What a fact is of, by how its name begins; the first that fits counts.
_KINDS = (
    ("provenance.image.", "image"),
    ("provenance.software.", PACKAGE),
    ("device_conditions.driver", DRIVER),
    ("host.microcode", FIRMWARE),
    ("host.", "host"),
    ("environment.", "setting"),
    ("conditions.", "setting"),
    ("device_conditions.", "setting"),
)


@dataclass(frozen=True)
class Explanation:
    """A fact that differs between the runs before a change and those after it."""

    kind: str  # image, package, driver, firmware, host, setting, or measured
    name: str
    before: Any
    after: Any
    separation: float  # from 0 to 1
    without_effect: int = 0  # places in all series at which it changed likewise, and performance did not


@dataclass(frozen=True)
class KeptImage:
    """An image that is here, with its labels."""

    address: str
    labels: Mapping[str, str]
    engine: Engine

    @property
    def key(self) -> str:
        """Its build key."""
        return self.labels.get(BUILD_KEY, "")

    def packages(self) -> dict[str, str]:
        """Return its packages with their versions, by its SBOM; nothing if it has none."""
        document = json.loads(self.engine.inspect(self.address).sboms().get(CYCLONEDX) or b"{}")
        return {each["name"]: each.get("version", "") for each in document.get("components", ())}


def kept_images(folders: Iterable[Path], settings: Settings) -> dict[str, KeptImage]:
    """Return the images that are in folders, by build key."""
    engine = open_engine(settings, "apptainer")
    found: dict[str, KeptImage] = {}
    seen = set()
    # The names of workloads, such as resnet50-cpu.sif, are links to the file of their recipe.
    files = [path for folder in folders for path in folder.rglob("*.sif")]
    for file in sorted(files, key=lambda path: ("-" in path.stem, path)):
        status = file.stat()
        if (place := (status.st_dev, status.st_ino)) in seen:
            continue
        seen.add(place)
        info = engine.image_info(str(file))
        if info and {BUILD_KEY, RECIPE} <= info.labels.keys():
            kept = KeptImage(str(file), info.labels, engine)
            found.setdefault(kept.key, kept)
    return found


def sides_of(history: History, change: Change) -> tuple[list[HistoryRun], list[HistoryRun]]:
    """Return the runs of the periods before and after a change."""
    periods = dict(zip(history.changes, pairwise(history.periods), strict=True))
    before, after = periods[change]
    return before.runs, after.runs


def explanations(
    history: History, change: Change, every: Sequence[History], kept: Mapping[str, KeptImage] | None = None
) -> list[Explanation]:
    """Return what may explain a change, the best first: what separates, and did not change elsewhere in vain.

    `every` are all series; packages come from SBOMs of the `kept` images.
    """
    before, after = sides_of(history, change)
    found = list(_stated([run.environment for run in before], [run.environment for run in after]))
    found += _measured([run.covariates for run in before], [run.covariates for run in after])
    found += [each for key in found if key.name == IMAGE_KEY for each in _packages(key, kept or {})]
    in_vain = Counter(
        (each.name, str(each.before), str(each.after))
        for other in every
        for place in other.unchanged
        for each in place.differences
    )
    counted = [
        Explanation(
            each.kind,
            each.name,
            each.before,
            each.after,
            each.separation,
            in_vain[each.name, str(each.before), str(each.after)],
        )
        for each in found
    ]
    return sorted(counted, key=_best_first)


def _best_first(each: Explanation) -> tuple[float, int, bool, str]:
    return -round(each.separation, 3), each.without_effect, each.kind == MEASURED, each.name


def _stated(before: Sequence[Environment], after: Sequence[Environment]) -> Iterator[Explanation]:
    for name in dict.fromkeys(name for side in (before, after) for each in side for name in each):
        old, new = (Counter(each[name] for each in side if name in each) for side in (before, after))
        if not old or not new:
            continue
        separation = sum(abs(old[v] / old.total() - new[v] / new.total()) for v in {*old, *new}) / 2
        if separation >= LEAST:
            yield Explanation(kind_of(name), name, old.most_common(1)[0][0], new.most_common(1)[0][0], separation)


def _measured(before: Sequence[Environment], after: Sequence[Environment]) -> Iterator[Explanation]:
    for name in dict.fromkeys(name for each in (*before, *after) for name in each):
        old, new = ([each[name] for each in side if name in each] for side in (before, after))
        if not old or not new or not all(isinstance(value, int | float) for value in (*old, *new)):
            continue
        delta = sum((b > a) - (b < a) for a in old for b in new) / (len(old) * len(new))
        if abs(delta) >= LEAST:
            yield Explanation(MEASURED, name, median(old), median(new), abs(delta))


def _packages(image: Explanation, kept: Mapping[str, KeptImage]) -> Iterator[Explanation]:
    """Yield the packages in which the images of both sides differ, if both are here and have SBOMs."""
    first, second = kept.get(str(image.before)), kept.get(str(image.after))
    if first is None or second is None:
        return
    try:
        old, new = first.packages(), second.packages()
    except (SifmarkError, ValueError):  # an SBOM that does not read explains nothing
        return
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Explanation(PACKAGE, name, old.get(name, "none"), new.get(name, "none"), image.separation)


def kind_of(name: str) -> str:
    """Return what a fact is of."""
    return next((kind for prefix, kind in _KINDS if name.startswith(prefix)), "setting")
