"""The fast way to a flat SIF: convert the base once, append our layers, wrap.

`mksquashfs` appends new top-level folders to a copy of the converted base; nothing of the base is compressed twice, and
the image has one ordinary file system. Each stage is kept in the cache; what is appended to is always a pristine copy.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sifmark.attestations import provenance, sbom
from sifmark.core import git
from sifmark.core.console import step
from sifmark.core.files import FIXED_MTIME, sha256_bytes, write_json
from sifmark.core.process import run, thread_pool
from sifmark.core.settings import settings
from sifmark.engines.apptainer.sif import (
    CYCLONEDX_JSON,
    DATA_START,
    DEFINITION,
    INSPECT_NAME,
    METADATA,
    SBOM,
    SPDX_JSON,
    SifObject,
    read_sif,
    sha256_from,
    write_sif,
)
from sifmark.engines.apptainer.squashfs import packages_in
from sifmark.layers.assemble import code_layer, site_layer
from sifmark.layers.cache import BASES, LAYERS, STOCKED, Entry
from sifmark.layers.offline import base_creation_time, offline_base, require_intact
from sifmark.recipes import render
from sifmark.recipes.names import workloads_of
from sifmark.recipes.plan import Plan

# Options of mksquashfs. Level 3 of zstd packs a torch image 20 times faster than gzip, into the same size.
COMPRESSION = {
    "zstd": ["-comp", "zstd", "-Xcompression-level", "3"],
    "gzip": ["-comp", "gzip"],
    "lz4": ["-comp", "lz4"],
    "xz": ["-comp", "xz"],
}
SQUASHFS, ATTRIBUTES = "root.squashfs", "attributes.json"  # files of a converted base
SBOMS = "sboms.json"  # and the drafts of one with our wheels
SYSTEM_NAME = "system partition"  # as provenance calls it
_DISK_REMEDY = "free space in the cache, temporary and dist folders; `inv doctor` shows what each has"


def build_sif(plan: Plan, target: Path, log: Path) -> None:
    """Make the SIF of a plan as `target`. Raises SifmarkError naming the stage's command and log."""
    stocked = base_with_wheels(plan, log)
    if stocked.seal() is None:
        with thread_pool(2) as pool:  # neither needs the other
            converted = pool.submit(converted_base(plan, log).ensure)
            made = site_layer(plan, log).ensure()
            converted.result()
        stocked = base_with_wheels(plan, log, check=not made)
    stocked.ensure()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as name:
        folder = Path(name)
        with step("append the code"):
            with thread_pool(1) as pool:
                written = pool.submit(code_layer, plan, folder / "layer")
                stocked.copy(folder, skip={SQUASHFS: DATA_START})
                written.result()
            _append(folder / "layer", folder / SQUASHFS, log, DATA_START)
        attributes, sboms = (json.loads((folder / name).read_text()) for name in (ATTRIBUTES, SBOMS))
        assemble_sif(plan, folder / SQUASHFS, _attributes(plan, attributes), sboms)
        (folder / SQUASHFS).rename(target)


def converted_base(plan: Plan, log: Path | None = None) -> Entry:
    """The base as a squashfs with our fixed run script, environment, test and help, and its attributes."""
    return Entry(BASES, plan.base_key, partial(_convert, plan, log))


def base_with_wheels(plan: Plan, log: Path | None = None, check: bool = True) -> Entry:
    """The converted base with the wheels appended, whose layer is held against its seal before with `check`."""
    return Entry(STOCKED, plan.base_with_wheels_key, partial(_stock, plan, log, check))


def stages(plan: Plan) -> dict[str, Entry]:
    """All that the cache keeps of a build, by kind."""
    return {BASES: converted_base(plan), LAYERS: site_layer(plan), STOCKED: base_with_wheels(plan)}


def _convert(plan: Plan, log: Path | None, folder: Path) -> None:
    definition, image = folder / "base.def", folder / "base.sif"
    remedy = f"is the registry of {plan.base.address} up? `inv doctor` asks it. {_DISK_REMEDY}"
    with step(f"convert the base {plan.base.pull}") as progress:
        made = base_creation_time(plan.base)
        date = datetime.fromtimestamp(made, UTC).isoformat()
        if layout := offline_base(plan.base):
            require_intact(layout, plan.base.digest)
            definition.write_text(render.base_definition(plan.recipe, str(layout), agent="oci", date=date))
        else:
            definition.write_text(render.base_definition(plan.recipe, plan.base.pull, date=date))
        build_definition(plan, made, definition, image, log, progress.detail, remedy)
        converted = read_sif(image)
        converted.copy(converted.system, folder / SQUASHFS)
        write_json(folder / ATTRIBUTES, converted.attributes())
    image.unlink()
    definition.unlink()


def build_definition(
    plan: Plan,
    made: int,
    definition: Path,
    target: Path,
    log: Path | None,
    watch: Callable[[str], None],
    remedy: str = "",
) -> None:
    """`apptainer build` of a definition on a plan's base, with its compression. Raises CommandError.

    What Apptainer adds is dated as the base, which was `made` so many seconds after 1970: its mksquashfs takes
    SOURCE_DATE_EPOCH for the latest date.
    """
    # Apptainer's own cache has no locks: of builds at once, some find its list of images half written, and fail.
    command = ["apptainer", "build", "--disable-cache", "--force", "--notest"]
    command += [f"--mksquashfs-args={' '.join(COMPRESSION[plan.compression])}"]
    command += ["--no-https"] if plan.base.plain_http else []
    run(
        [*command, target, definition],
        log=log,
        watch=watch,
        time_limit=settings().time_limit,
        remedy=remedy,
        environment={"SOURCE_DATE_EPOCH": str(made)},
    )


def _stock(plan: Plan, log: Path | None, check: bool, folder: Path) -> None:
    base, site = converted_base(plan, log), site_layer(plan, log)
    base.ensure()
    with site.held(check=check) as layer, step("append the wheels"):
        base.copy(folder)
        _append(layer, folder / SQUASHFS, log)
        write_json(folder / SBOMS, sbom.draft_documents(plan, packages_in(folder / SQUASHFS)))


def _append(layer: Path, squashfs: Path, log: Path | None, offset: int = 0) -> None:
    """Add a layer's folders to a squashfs that begins so many bytes into its file."""
    run(
        ["mksquashfs", layer, squashfs, "-all-root", "-no-progress", "-no-recovery", "-offset", str(offset)],
        log=log,
        time_limit=settings().time_limit,
        remedy=_DISK_REMEDY,
        environment={"SOURCE_DATE_EPOCH": str(FIXED_MTIME)},
    )


def assemble_sif(plan: Plan, squashfs: Path, attributes: dict[str, Any], sboms: Mapping[str, Any]) -> None:
    """Make a SIF of a file that holds an image's squashfs behind room for the table. Apptainer answers `attributes`.

    What is in it, by drafts, and where it came from goes with it, before anyone signs.
    """
    told = json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True).encode()
    subjects = {
        SYSTEM_NAME: sha256_from(squashfs, DATA_START),
        INSPECT_NAME: sha256_bytes(told).removeprefix("sha256:"),
    }
    boms = sbom.finish_documents(plan, sboms, git.source_date_of_build())
    parts = [
        SifObject(DEFINITION, attributes["deffile"].encode()),
        SifObject(METADATA, told, INSPECT_NAME),
        SifObject(SBOM, boms[sbom.SPDX], sbom.SPDX, SPDX_JSON),
        SifObject(SBOM, boms[sbom.CYCLONEDX], sbom.CYCLONEDX, CYCLONEDX_JSON),
        SifObject(METADATA, provenance.statement(plan, subjects), provenance.NAME),
    ]
    write_sif(squashfs, plan.platform, parts, git.source_date_of_build(), uuid5(NAMESPACE_URL, plan.build_key).bytes)


def _attributes(plan: Plan, of_base: dict[str, Any]) -> dict[str, Any]:
    """What `apptainer inspect` will answer: the base's own attributes, with our labels, apps and definition."""
    return {
        **of_base,
        "labels": {**(of_base.get("labels") or {}), **plan.labels()},
        "deffile": render.definition(plan.recipe, plan.base.pull, plan.labels(), context="."),
        "apps": {name: {"runscript": render.app_script()} for name in workloads_of(plan.recipe.name)},
    }
