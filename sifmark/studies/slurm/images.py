"""How nodes start the images of systems, checked on a login node without accelerators."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.permissions import require_unshared
from sifmark.core.settings import Settings
from sifmark.engines import APPTAINER, Engine, open_engine, require_signed
from sifmark.engines.apptainer.engine import user_flags
from sifmark.engines.binds import Bind, all_binds_of, binds_of, merged, read_options
from sifmark.engines.locate import access_of_image, locate_any
from sifmark.engines.start import image_facts
from sifmark.recipes.hardware import hardware_of
from sifmark.studies.images import image_hashes, is_address
from sifmark.studies.slurm.jobs import StartedImage
from sifmark.studies.slurm.options import JobOptions
from sifmark.studies.study import PlannedRun, System


def started_image(
    system: System, options: JobOptions, settings: Settings, runs: Iterable[PlannedRun], own_folders: bool = False
) -> StartedImage:
    """Return how nodes start the image of a system for runs; plain Apptainer has to be told the paths that they use.

    With `own_folders` each run writes its result to the folder that it starts in, as in suites of benchmarks.
    Raises SifmarkError if the image is missing or cannot be trusted.
    """
    engine = open_engine(settings, APPTAINER)
    path = Path(_located(system, engine)).resolve()
    if settings.require_signature:
        require_unshared(path, "an image whose signature is required")
        require_signed(engine.inspect(str(path)), settings.keys)
    facts = path.stat()
    state = f"{facts.st_size} {int(facts.st_mtime)}"
    digest = "" if own_folders else image_hashes(str(path), engine, settings).digest
    if options.start_with == "sifmark":
        return StartedImage(path, state, digest, system.bind, _sifmark(options))
    binds = _data_binds(system, runs) if own_folders else _binds(system, runs)
    start = StartedImage(path, state, digest, flags=(*user_flags(), *engine.bind_flags(binds)))
    return _plain(start, engine, settings)


def _located(system: System, engine: Engine) -> str:
    if is_address(system.image):
        remedy = "pull it: sifmark registry.pull; then name the file in the study file, or --system NAME:FILE.sif"
        raise SifmarkError(f"system {system.name}: {system.image} is not here", remedy, code="image-not-built")
    return locate_any(system.image, engine)


def _sifmark(options: JobOptions) -> tuple[str, ...]:
    """Return the words that start sifmark on nodes: the site's, or this sifmark, on a file system that they see."""
    if options.sifmark:
        program = Path(options.sifmark).expanduser()
        if program.is_absolute() and not os.access(program, os.X_OK):
            cause = f"[slurm] sifmark: {options.sifmark} is no program on this host"
            remedy = 'correct sifmark in [slurm] of sifmark.toml; nodes without it need start_with = "apptainer"'
            raise UsageError(cause, remedy, code="program-missing")
        return (str(program),)
    program = Path(sys.prefix) / "bin" / "sifmark"
    return (str(program),) if os.access(program, os.X_OK) else (sys.executable, "-P", "-m", "sifmark")


def _binds(system: System, runs: Iterable[PlannedRun]) -> list[Bind]:
    """Return what runs have to be shown: the binds of their system, what they read, and the folders of results."""
    words = dict.fromkeys(each.paths for each in runs)
    return merged(bind for each in words for bind in binds_of(each, make_folders=False, asked=system.bind))


def _data_binds(system: System, runs: Iterable[PlannedRun]) -> list[Bind]:
    """Return the binds of a system and what its runs read, also what is below the current folder."""
    words = dict.fromkeys(read_options(each.run.arguments) for each in runs)
    return merged(bind for each in words for bind in all_binds_of(each, make_folders=False, asked=system.bind))


def _plain(start: StartedImage, engine: Engine, settings: Settings) -> StartedImage:
    """Return the start by plain Apptainer. Whether a node has the device is decided there."""
    access = access_of_image(engine, str(start.path))
    if access is not None and not access.is_allowed():
        remedy = "is it an image that sifmark built?"
        raise SifmarkError(f"{start.path}: its labels ask for {access}", remedy, code="not-sifmark-image")
    facts = image_facts(engine.inspect(str(start.path)), settings.require_signature, settings.keys)
    if access is None:
        return replace(start, facts=json.dumps(facts))
    hardware = hardware_of(access)
    return replace(
        start,
        device_files=access.devices,
        device_flags=access.apptainer,
        selection_paths=hardware.selection_paths if hardware else (),
        facts=json.dumps(facts),
    )
