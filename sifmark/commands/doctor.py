"""The doctor command: print what works on this host, or what an image sees of it."""

import json
from collections.abc import Iterable

from sifmark.core.checks import Check, Status
from sifmark.core.console import output
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor.host import check_host
from sifmark.doctor.image import check_image
from sifmark.engines.locate import engine_for

# How a check is described, by its status.
STATES = {Status.PASSED: "good", Status.WARNING: "poor", Status.FAILED: "bad"}


def run_doctor(image: str, settings: Settings, as_json: bool) -> None:
    """Print the checks of this host, or those inside an image if one is named. Raises SifmarkError if one failed."""
    checks = list(check_image(image, engine_for(image, settings), settings) if image else check_host(settings))
    if as_json:
        output(json.dumps([check_document(check) for check in checks], indent=2))
    else:
        _print(checks)
    failed = [check.name for check in checks if check.status is Status.FAILED]
    if failed:
        raise SifmarkError(f"not ready: {', '.join(failed)}", "the lines above say what to do", code="host-not-ready")


def check_document(check: Check) -> dict[str, str]:
    """Return a check as programs read it."""
    return {"subject": check.name, "state": STATES[check.status], "seen": check.detail, "remedy": check.remedy}


def _print(checks: Iterable[Check]) -> None:
    for check in checks:
        output(f"{STATES[check.status]:<5} {check.name}: {check.detail}")
        if check.remedy:
            output(f"      remedy: {check.remedy}")
