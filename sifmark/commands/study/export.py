"""The study.export command: write a study in the form of another program."""

from pathlib import Path

from sifmark.core.console import output, printable, status, warn
from sifmark.core.settings import Settings
from sifmark.studies.exports.export import export_study
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import StudyPlan

# What to do with the files, by format.
_NEXT = {
    "reframe": "run it with your site's settings: reframe -C SETTINGS.py -c {file} --run",
    "jube": "run it: jube run {file}",
    "shell": "run it: {file}",
}
_SUBMIT = "read them, then submit them: {file}"


def export(request: Request, target: str, place: str, settings: Settings) -> None:
    """Write the files of an export and print their paths. Raises SifmarkError."""
    plan = plan_study(request, settings)
    folder = Path(place or f"{plan.study.name}-{target}")
    if target == "shell":
        _warn_of_missing_images(plan)
    files = export_study(plan, target, folder, settings)
    for path in files:
        if not path.name.startswith("."):
            output(printable(str(path)))
    first = files[0] if target in _NEXT else files[-1]
    status(_NEXT.get(target, _SUBMIT).format(file=printable(str(first.absolute() if target == "shell" else first))))


def _warn_of_missing_images(plan: StudyPlan) -> None:
    """Say that results get other names once the image is here: these have its ID."""
    for name, identity in plan.images.items():
        if not identity:
            reason = plan.image_reasons.get(name, "the image is not here")
            warn(f"{name}: {reason}; then export again, or study.plan does not find the results of this script")
