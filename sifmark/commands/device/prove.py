"""The command device.prove: the doctor, then every experiment that an image or this checkout has for a device."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import write_json
from sifmark.core.paths import ENTRYPOINTS, import_shared
from sifmark.core.process import attend
from sifmark.core.settings import Settings
from sifmark.doctor.host import check_host
from sifmark.engines.start import check_image, find, run_options


def prove_device(image: str, minutes: int, output: str, workload: str, python: str, settings: Settings) -> None:
    """Prove a device with an image, or without one by an interpreter that has a framework; end as the proof does.

    Raises SifmarkError, UsageError if the folder has a proof already.
    """
    folder, names = Path(output), import_shared("proof.names")
    if (folder / names.PROOF).exists():
        raise UsageError(
            f"{folder} has a proof already", "name a new folder: --output proof-2", code="folder-not-empty"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / names.DOCTOR, [asdict(check) for check in check_host(settings)])
    words = [*filter(None, [workload]), "--prove", "--time-limit", f"{minutes}m", "--output", f"{folder}/"]
    sys.exit(_in_image(image, words, settings) if image else _outside(python, words))


def _in_image(name: str, words: Sequence[str], settings: Settings) -> int:
    address, engine = find(name, settings)
    options = run_options(engine, address, words)
    image = check_image(address, engine, settings, signed=False)
    argv = image.command(words, options)
    image.require_unchanged()
    return attend(argv, image.variables)


def _outside(python: str, words: Sequence[str]) -> int:
    return attend([python, "-s", "-B", str(ENTRYPOINTS / "main.py"), *words, "--device", "auto"], {})
