"""The doctor command: print what works on this host, or what an image sees of it."""

from collections.abc import Iterable

from sifmark.commands.answers import Table, answer
from sifmark.core.checks import Check, Status
from sifmark.core.console import output, paint
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor.host import check_host
from sifmark.doctor.image import check_image
from sifmark.engines.locate import engine_for

# How a check is described, by its status.
STATES = {Status.PASSED: "good", Status.WARNING: "poor", Status.FAILED: "bad"}


def run_doctor(image: str, settings: Settings, form: str) -> None:
    """Print the checks of this host, or those inside an image if one is named. Raises SifmarkError if one failed."""
    checks = list(check_image(image, engine_for(image, settings), settings) if image else check_host(settings))
    documents = [check_document(check) for check in checks]
    columns = ("subject", "state", "seen", "remedy")
    table = Table(columns, [[document[column] for column in columns] for document in documents])
    answer(form, documents, table, lambda: _show(checks))
    failed = [check.name for check in checks if check.status is Status.FAILED]
    if failed:
        raise SifmarkError(f"not ready: {', '.join(failed)}", "the lines above say what to do", code="host-not-ready")


def check_document(check: Check) -> dict[str, str]:
    """Return a check as programs read it."""
    return {"subject": check.name, "state": STATES[check.status], "seen": check.detail, "remedy": check.remedy}


def _show(checks: Iterable[Check]) -> None:
    for check in checks:
        state = STATES[check.status]
        output(f"{paint(f'{state:<5}', word=state)} {check.name}: {check.detail}")
        if check.remedy:
            output(f"      remedy: {check.remedy}")
