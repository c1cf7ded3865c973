"""The study.archive command: one file with a study and all that its results rest on."""

from collections import Counter
from pathlib import Path
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, printable, status, step, warn
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.results.archive import SUFFIX
from sifmark.studies.exports.archive import archive_study
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import RunState, StudyPlan

_OPEN = (RunState.TO_DO, RunState.QUEUED, RunState.RUNNING)


def archive(request: Request, target: str, settings: Settings, form: str) -> None:
    """Write the archive of a study and print what is in it. Raises SifmarkError."""
    plan = plan_study(request, settings)
    file = Path(target or f"{plan.study.name}{SUFFIX}")
    _warn_of_missing(plan)
    with step(f"archive {plan.study.name}"):
        manifest = archive_study(plan.study, plan.folder, file, settings)
    document = {"file": str(file), "size": file.stat().st_size, "manifest": manifest}
    kinds = Counter(entry["kind"] for entry in manifest["members"])
    answer(form, document, Table(("kind", "members"), list(kinds.items())), lambda: _show(file, manifest, kinds))
    status(f"to check it elsewhere: sifmark results.validate {printable(str(file))}")


def _warn_of_missing(plan: StudyPlan) -> None:
    missing = [planned for planned in plan.runs if planned.state in _OPEN]
    if missing:
        running = sum(planned.state is RunState.RUNNING for planned in missing)
        progress = f", {running} of them in progress" if running else ""
        warn(f"{len(missing)} of {len(plan.runs)} runs have no result yet{progress}")


def _show(file: Path, manifest: dict[str, Any], kinds: Counter[str]) -> None:
    output(f"{printable(str(file))}: {human_size(file.stat().st_size)}")
    output(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    output("results: " + ", ".join(f"{count} {state}" for state, count in sorted(manifest["states"].items())))
