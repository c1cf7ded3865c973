"""Commands for this host and its devices: doctor, device.prove."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError, UsageError, locate_scripts
from sifmark.core.files import write_json
from sifmark.core.terminal import output, paint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sifmark.core.settings import Settings


@cli.command("doctor", example="doctor")
@cli.option("--image", "Run this image for some seconds and check what it sees.", "NAME", completes="image")
@cli.format_option
@cli.engine_option
def run_doctor(settings: Settings, image: str = "", form: str = TABLE) -> None:
    """Check this host, or what an image sees of it."""
    if image:
        from sifmark.doctor.image import check_image
        from sifmark.engines.locate import engine_for

        made = check_image(image, engine_for(image, settings), settings)
    else:
        from sifmark.doctor.host import check_host

        made = check_host(settings)
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


@cli.command("device.prove", example="device.prove --image cpu --minutes 5")
@cli.option(
    "--image", "An image, a recipe, or an image file. [default: no image, but --python]", "NAME", completes="image"
)
@cli.option("--minutes", "Time for all experiments.", "N", least=1)
@cli.output_option("A new folder for results and the page.", "FOLDER", "target")
@cli.option("--workload", "Only this workload. [default: all]", "NAME", completes="workload")
@cli.option("--python", "Without an image: a Python that has PyTorch.", "FILE")
@cli.engine_option
def prove_device(
    settings: Settings,
    image: str = "",
    minutes: int = 20,
    target: str = "proof",
    workload: str = "",
    python: str = "python3",
) -> None:
    """Try out a device; write a page on what holds."""
    from sifmark.core.paths import import_shared
    from sifmark.doctor.host import check_host

    folder, names = Path(target), import_shared("proof.names")
    if (folder / names.PROOF).exists():
        raise UsageError(
            f"{folder} has a proof already", "name a new folder: --output proof-2", code="folder-not-empty"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / names.DOCTOR, [asdict(check) for check in check_host(settings)])
    words = [*filter(None, [workload]), "--prove", "--time-limit", f"{minutes}m", "--output", f"{folder}/"]
    sys.exit(_in_image(image, words, settings) if image else _outside(python, words))


def _in_image(name: str, words: Sequence[str], settings: Settings) -> int:
    from sifmark.core.process import run_foreground
    from sifmark.engines.start import check_image, find, run_options

    address, engine = find(name, settings)
    options = run_options(engine, address, words)
    image = check_image(address, engine, settings, signed=False)
    argv = image.command(words, options)
    image.require_unchanged()
    return run_foreground(argv, image.variables)


def _outside(python: str, words: Sequence[str]) -> int:
    from sifmark.core.paths import ENTRYPOINTS
    from sifmark.core.process import run_foreground

    return run_foreground([python, "-s", "-B", str(ENTRYPOINTS / "main.py"), *words, "--device", "auto"], {})
