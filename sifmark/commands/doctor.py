"""The doctor command: print what works on this host, or what an image sees of it."""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace

from sifmark.commands.answers import Table, answer
from sifmark.core.checks import Check, Status
from sifmark.core.console import output, paint
from sifmark.core.errors import SifmarkError, locate_scripts
from sifmark.core.settings import Settings
from sifmark.doctor.host import check_host
from sifmark.doctor.image import check_image
from sifmark.engines.locate import engine_for


def run_doctor(image: str, settings: Settings, form: str) -> None:
    """Print the checks of this host, or those inside an image if one is named. Raises SifmarkError if one failed."""
    made = check_image(image, engine_for(image, settings), settings) if image else check_host(settings)
    checks = [replace(check, remedy=locate_scripts(check.remedy)) for check in made]
    documents = [asdict(check) for check in checks]
    table = Table([field.name for field in fields(Check)], [list(document.values()) for document in documents])
    answer(form, documents, table, lambda: _show(checks))
    failed = [check.name for check in checks if check.status is Status.FAILED]
    if failed:
        raise SifmarkError(f"not ready: {', '.join(failed)}", "the lines above say what to do", code="host-not-ready")


def _show(checks: Iterable[Check]) -> None:
    for check in checks:
        status = check.status.value
        output(f"{paint(f'{status:<7}', word=status)} {check.name}: {check.detail}")
        if check.remedy:
            output(f"        remedy: {check.remedy}")
