"""What study.history says of the causes of changes: --explain and --bisect."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import write_text
from sifmark.core.terminal import output, output_table, status, warn
from sifmark.results.comparison.compatibility import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.studies.history.bisect import Bisection
    from sifmark.studies.history.changes import Change, History
    from sifmark.studies.history.explain import Explanation, KeptImage

MOST_SHOWN = 12  # facts of a change
_COLUMNS = ("kind", "what differs", "before", "after", "separates", "elsewhere without effect")
_LONGEST = 40  # characters of a value


@dataclass(frozen=True)
class ExplainedChange:
    """A change with what may explain it."""

    history: History
    change: Change
    explanations: Sequence[Explanation]

    @property
    def title(self) -> str:
        """Where and when: `ResNet-50 training on alpha, 2026-04-10`."""
        series = self.history.series
        what = f"{series.title.partition(',')[0]} {series.group.task} on {series.system}"
        return f"{what}, {self.change.before:%Y-%m-%d}"


def explain(
    settings: Settings, results: Sequence[History], changed: Sequence[Sequence[Change]], images: Sequence[str]
) -> list[ExplainedChange]:
    """Return the changes of histories with what may explain them."""
    from sifmark.studies.history.explain import explanations

    kept = _kept(settings, images)
    return [
        ExplainedChange(history, change, explanations(history, change, results, kept))
        for history, changes in zip(results, changed, strict=True)
        for change in changes
    ]


def as_documents(explained: Sequence[ExplainedChange]) -> list[dict[str, Any]]:
    """Return explanations as programs read them."""
    return [
        {
            "workload.title": each.history.series.title,
            "system": each.history.series.system,
            "before": each.change.before.isoformat(),
            "facts": [asdict(fact) for fact in each.explanations],
        }
        for each in explained
    ]


def show(explained: Sequence[ExplainedChange]) -> None:
    """Print a table for each change."""
    for each in explained:
        output("")
        output(printable(f"{each.title}:"))
        if not each.explanations:
            output("nothing that results state differs: cooling, neighbours, file systems?")
            continue
        output_table(*_COLUMNS, rows=[_row(fact) for fact in each.explanations[:MOST_SHOWN]])
        if (more := len(each.explanations) - MOST_SHOWN) > 0:
            output(f"and {more} more: --format json has them all")


def _row(fact: Explanation) -> list[str]:
    values = [_short(fact.before), _short(fact.after)]
    return [fact.kind, printable(fact.name), *values, f"{fact.separation:.2f}", str(fact.without_effect or "")]


def _short(value: Any) -> str:
    text = printable(format_value(value))
    text = text[:19] if text.startswith("sha256:") else text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def bisect(
    settings: Settings,
    results: Sequence[History],
    changed: Sequence[Sequence[Change]],
    images: Sequence[str],
    file: Path,
    running: bool,
    allowed: Sequence[str],
) -> None:
    """Write the study that decides about the largest change, run it if asked to, and say what its results show.

    Runs with `allowed` marks are judged as well.
    Raises SifmarkError if there is no change, or if no study of images can decide.
    """
    from sifmark.studies.history.bisect import bisection_of
    from sifmark.studies.study_file import require_name

    pairs = [(history, each) for history, those in zip(results, changed, strict=True) for each in those]
    if not pairs:
        cause = "there is no change to bisect"
        raise SifmarkError(cause, "--since and --least-change say which changes count", code="result-missing")
    if file.suffix != ".toml":
        raise UsageError(f"--bisect {file} is no study file", "end its name in .toml", code="invalid-option")
    require_name(file)
    history, change = max(pairs, key=lambda pair: abs(math.log(pair[1].ratio.value or 1.0)))
    bisection = bisection_of(history, change, _kept(settings, images))
    write_text(file, bisection.text)
    title = ExplainedChange(history, change, ()).title
    status(f"{file}: {len(bisection.images)} images, {bisection.repeats} runs of each, about {printable(title)}")
    if running:
        _run(settings, file)
    _conclude(bisection, file, allowed)


def _run(settings: Settings, file: Path) -> None:
    from sifmark.commands.study_views import StudyDisplay
    from sifmark.studies.library import Study
    from sifmark.studies.plan import Request

    for planned, reason in Study(Request(str(file)), settings).run(watcher=StudyDisplay(plain=False)).failed:
        warn(f"{planned.run.system}: {reason}")


def _conclude(bisection: Bisection, file: Path, allowed: Sequence[str]) -> None:
    """Print what the results of the study say; without any, how to get them."""
    from sifmark.results.comparison.tables import ratio_text
    from sifmark.studies.folder import folder_of, system_folders
    from sifmark.studies.history.bisect import command_of, commits_of, conclusion, decide
    from sifmark.studies.load import load_study
    from sifmark.studies.plan import Request

    folders = system_folders(folder_of(load_study(str(file)), Request.results))
    if not folders:
        status(f"run it on the system of the change, and bisect again: {command_of(file)}")
        return
    steps = decide(bisection, list(map(str, folders)), allowed)
    unit = bisection.history.series.unit
    words = {True: "has the change", False: "does not have it", None: "cannot tell"}
    output_table(
        *("image", "as after", "to that of before", "verdict"),
        rows=[[s.system, ", ".join(s.parts), ratio_text(s.ratio, unit), words[s.has_change]] for s in steps],
    )
    output(conclusion(steps))
    if commits := commits_of(bisection):
        status(f"the commits between both images, in a clone: {printable(commits)}")


def _kept(settings: Settings, images: Sequence[str]) -> dict[str, KeptImage]:
    from sifmark.studies.history.explain import kept_images

    if missing := next((each for each in images if not Path(each).is_dir()), None):
        raise UsageError(
            f"--images {missing}: there is no such folder", "name one with .sif files", code="file-missing"
        )
    return kept_images([Path(each) for each in images] or [settings.dist], settings)
