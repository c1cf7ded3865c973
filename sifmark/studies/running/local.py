"""Preparation of runs on this machine: which are selected, and checks of their images."""

from collections.abc import Iterable
from dataclasses import dataclass

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed
from sifmark.engines.locate import has_device
from sifmark.engines.start import check_image, find
from sifmark.studies.running.budget import most_informative_first
from sifmark.studies.running.execute import ReadySystem
from sifmark.studies.running.shares import Machine, machine_for, threads_of
from sifmark.studies.study import PlannedRun, RunState, StudyPlan, System


@dataclass(frozen=True)
class Selection:
    """The runs of a plan that this machine is to do, in order, and why others are left out."""

    runs: tuple[PlannedRun, ...]
    missing_images: tuple[str, ...] = ()  # systems whose image is not here
    multi_node: int = 0  # runs that need more than one node


def select(plan: StudyPlan, budget: bool) -> Selection:
    """Choose the runs that this machine is to do.

    Those of a job are left to it. What another process does here is chosen too: it may be on its way to end.
    """
    wanted = (RunState.TO_DO, RunState.RUNNING)
    missing = tuple(name for name, image in plan.images.items() if not image)
    free = [each for each in plan.runs if each.state in wanted and not each.job]
    runs = [each for each in free if plan.images.get(each.run.system)]
    single = [each for each in runs if each.run.nodes == 1]
    ordered = most_informative_first(single) if budget else single
    return Selection(tuple(ordered), missing, len(runs) - len(single))


def require_images(plan: StudyPlan, selection: Selection, named: bool) -> None:
    """Raise SifmarkError if no image is here, or one is missing although the systems were `named`."""
    missing = selection.missing_images
    if missing and (named or len(missing) == len(plan.images)):
        causes = [f"{name}: {plan.image_reasons.get(name, 'the image is not here')}" for name in missing]
        remedy = f"build or pull it, or run a system whose image is here: --system {missing[0]}:IMAGE"
        raise SifmarkError("\n".join(causes), remedy, code="image-not-built")


def prepare_systems(
    plan: StudyPlan, runs: Iterable[PlannedRun], settings: Settings, jobs: int
) -> dict[str, tuple[ReadySystem, Machine]]:
    """Look at the images of the systems that runs are on. Raises SifmarkError for one that cannot run here."""
    of_system: dict[str, list[PlannedRun]] = {}
    for planned in runs:
        of_system.setdefault(planned.run.system, []).append(planned)
    systems = {system.name: system for system in plan.study.systems}
    ready = {name: _prepared(systems[name], settings, jobs) for name in of_system}
    for name, (system, machine) in ready.items():
        _require_threads(of_system[name], machine)
        if system.image.facts["identity"] != plan.images[name]:
            cause = f"the image of system {name} was replaced while the study was planned"
            raise CheckFailed(cause, "run the study again if that was you", code="image-altered")
    return ready


def _require_threads(runs: Iterable[PlannedRun], machine: Machine) -> None:
    """Raise UsageError if runs would compute with fewer threads side by side than alone, and count as the same runs."""
    free = next((each for each in runs if not threads_of(each.run.arguments)), None)
    if free is not None and machine.jobs > 1 and not machine.devices:
        cause = f"--jobs {machine.jobs}: {free.run.group} leaves its threads to the processors that a run has"
        remedy = "use --jobs 1, or set threads in the study: results with others are of other runs"
        raise UsageError(cause, remedy, code="invalid-option")


def _prepared(system: System, settings: Settings, jobs: int) -> tuple[ReadySystem, Machine]:
    address, engine = find(system.image, settings)
    if not has_device(engine, address):
        cause = f"this host does not have the device of system {system.name}, which {system.image} needs"
        raise SifmarkError(cause, "run it on a machine that has it; see sifmark doctor", code="device-missing")
    if engine.version() is None:
        cause = f"{engine.name} is not installed here, which runs {system.image}"
        raise SifmarkError(cause, f"install it: ci/setup/{engine.name}", code="engine-missing")
    image = check_image(address, engine, settings, signed=False)
    return ReadySystem(system, image, settings), machine_for(engine, address, system.devices, jobs)
