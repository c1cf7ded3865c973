"""Building a SIF quickly: convert the base once, append our layers, wrap.

`mksquashfs` appends new top-level folders to the converted base. Nothing of the base is compressed twice, and the image
has one ordinary file system. Each stage is kept in the cache, and is never changed there. Of the base with wheels, the
last one, there is no copy either: it is read once, checked, hashed for the image, and written into it.
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
from sifmark.core.console import Step, step
from sifmark.core.files import sha256_bytes, write_json
from sifmark.core.process import run, thread_pool
from sifmark.core.settings import Settings
from sifmark.engines.apptainer.append import DISK_REMEDY, append, append_in_place
from sifmark.engines.apptainer.sif import (
    CYCLONEDX_JSON,
    DEFINITION,
    INSPECT_NAME,
    METADATA,
    SBOM,
    SPDX_JSON,
    FileSystem,
    Fingerprints,
    SifObject,
    read_sif,
    write_sif,
)
from sifmark.engines.apptainer.squashfs import modes_and_links, packages_in
from sifmark.layers.assemble import code_layer, site_layer
from sifmark.layers.cache import BASES, BASES_WITH_WHEELS, LAYERS, Entry
from sifmark.layers.interpreter import require_interpreter
from sifmark.layers.offline import base_creation_time, base_layout, base_size
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
_LEFT_OUT = "left-out"  # a file beside a definition, since Apptainer separates words at every blank
SBOMS = "sboms.json"  # SBOM drafts, beside them where our wheels were appended
# Bytes of packed layers a second that a host unpacks and packs again at least: a tenth of what two cores did. Slower is
# taken for a conversion that hangs. The largest base, 20 GB, may take 5 hours.
_SLOWEST_CONVERSION = 1.5e6
SYSTEM_NAME = "system partition"  # the file system's name as a subject of provenance


def build_sif(plan: Plan, target: Path, log: Path, settings: Settings) -> Fingerprints:
    """Make the SIF of a plan as `target`; return its hashes. Raises SifmarkError naming the stage's command and log."""
    base = base_with_wheels(plan, settings, log)
    if base.checksum() is None:
        base = base_with_wheels(plan, settings, log, check=not _prepare_stages(plan, settings, log))
    base.ensure()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as name:
        layer, image = (Path(name) / part for part in ("layer", "image.sif"))
        with step("assemble the code"):
            code_layer(plan, layer, settings)
        hashes = base.read(partial(_write_image, plan, layer, image, log, settings))
        image.rename(target)
    return hashes


def _write_image(
    plan: Plan, layer: Path, image: Path, log: Path, settings: Settings, base: Path
) -> tuple[Fingerprints, dict[str, str]]:
    """Write the SIF of the base in a folder with a layer appended. Return its hashes, and those of the base's files."""
    with step("append the code"):
        system = append(layer, base / SQUASHFS, image.with_name("end"), log, settings.time_limit)
    of_base, sboms = documents = [(base / name).read_bytes() for name in (ATTRIBUTES, SBOMS)]
    with step("add the attestations, write and hash") as progress, progress.watching(image):
        attributes = _attributes(plan, json.loads(of_base))
        hashes = assemble_sif(plan, system, image, attributes, json.loads(sboms), settings.builder)
    digests = dict(zip((ATTRIBUTES, SBOMS), map(sha256_bytes, documents), strict=True))
    return hashes, {SQUASHFS: system.base_digest(), **digests}


def _prepare_stages(plan: Plan, settings: Settings, log: Path) -> bool:
    """Convert the base and make the site layer side by side. Return whether the layer was made now, and so checked.

    The base is fetched in this thread, which signals interrupt.
    """
    with thread_pool(1) as pool:
        made = pool.submit(site_layer(plan, settings, log).ensure)
        converted_base(plan, settings, log).ensure()
        return made.result()


def converted_base(plan: Plan, settings: Settings, log: Path | None = None) -> Entry:
    """Return the cache entry of the base as a squashfs with our run script, environment, test and help."""
    return Entry(settings.cache, BASES, plan.base_key, partial(_convert, plan, settings, log))


def base_with_wheels(plan: Plan, settings: Settings, log: Path | None = None, check: bool = True) -> Entry:
    """Return the cache entry of the converted base with the wheels appended.

    With `check` the site layer is compared with its checksum before it is appended.
    """
    return Entry(
        settings.cache,
        BASES_WITH_WHEELS,
        plan.base_with_wheels_key,
        partial(_append_wheels, plan, settings, log, check),
    )


def cache_entries(plan: Plan, settings: Settings) -> dict[str, Entry]:
    """Return all that the cache keeps of a build, by kind."""
    return {
        BASES: converted_base(plan, settings),
        LAYERS: site_layer(plan, settings),
        BASES_WITH_WHEELS: base_with_wheels(plan, settings),
    }


def _convert(plan: Plan, settings: Settings, log: Path | None, folder: Path) -> None:
    """Fill a cache entry with the converted base: its squashfs and what `apptainer inspect` says of it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        image = Path(name, "base.sif")
        with base_layout(plan.base, settings) as layout, step(f"convert the base {plan.base.pull}") as progress:
            _convert_layout(plan, layout, image, log, settings, progress)
        converted = read_sif(image)
        converted.copy(converted.system, folder / SQUASHFS)
        require_interpreter(plan, modes_and_links(folder / SQUASHFS))
        write_json(folder / ATTRIBUTES, converted.attributes())


def _convert_layout(
    plan: Plan, layout: Path, image: Path, log: Path | None, settings: Settings, progress: Step
) -> None:
    created = base_creation_time(plan.base, layout)
    definition = image.with_name("base.def")
    date = datetime.fromtimestamp(created, UTC).isoformat()
    definition.write_text(render.base_definition(plan.recipe, plan.base.digest, date))
    definition.with_name(render.layout_name(plan.base.digest)).symlink_to(layout)
    with progress.watching(image):
        size = base_size(layout, plan.base.digest)
        build_definition(plan, created, definition, image, log, settings, progress.detail, size)


def build_definition(
    plan: Plan,
    created: int,
    definition: Path,
    target: Path,
    log: Path | None,
    settings: Settings,
    watch: Callable[[str], None],
    size: int,
) -> None:
    """Run `apptainer build` of a definition in its folder, with the plan's compression. Raises CommandError.

    What Apptainer adds gets the date of the base, `created` in seconds since 1970: its mksquashfs takes
    SOURCE_DATE_EPOCH as the latest date. `size` is in bytes, of the packed image that the definition starts from: the
    larger it is, the longer Apptainer may take.
    """
    # Apptainer's own cache has no locks: of concurrent builds, some find its list of images half written, and fail.
    command = ["apptainer", "build", "--disable-cache", "--force", "--notest"]
    definition.with_name(_LEFT_OUT).write_text("\n".join(render.LEFT_OUT))
    options = [*COMPRESSION[plan.compression], "-wildcards", "-ef", _LEFT_OUT]
    command += [f"--mksquashfs-args={' '.join(options)}"]
    run(
        [*command, target, definition],
        log=log,
        watch=watch,
        time_limit=settings.time_limit + size / _SLOWEST_CONVERSION,
        remedy=DISK_REMEDY,
        environment={"SOURCE_DATE_EPOCH": str(created)},
        folder=definition.parent,
    )


def _append_wheels(plan: Plan, settings: Settings, log: Path | None, check: bool, folder: Path) -> None:
    """Fill a cache entry with the converted base, the wheels appended to it, and SBOM drafts."""
    base, site = converted_base(plan, settings, log), site_layer(plan, settings, log)
    base.ensure()
    with site.use(check=check) as layer, step("append the wheels") as progress, progress.watching(folder / SQUASHFS):
        base.copy(folder)
        append_in_place(layer, folder / SQUASHFS, log, settings.time_limit)
        packages = packages_in(folder / SQUASHFS, settings.time_limit)
        write_json(folder / SBOMS, sbom.draft_documents(plan, packages))


def assemble_sif(
    plan: Plan, system: FileSystem, target: Path, attributes: dict[str, Any], sboms: Mapping[str, Any], builder: str
) -> Fingerprints:
    """Write the SIF of a file system with all its metadata.

    Return its hashes. `attributes` is what `apptainer inspect` will answer, `sboms` are drafts, and `builder` is for
    the provenance. SBOMs and provenance are added here, before anyone signs.
    """
    metadata = json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True).encode()
    documents = sbom.finish_documents(plan, sboms, git.source_date_of_build())

    def parts(system_digest: str) -> list[SifObject]:
        subjects = {SYSTEM_NAME: system_digest, INSPECT_NAME: sha256_bytes(metadata).removeprefix("sha256:")}
        return [
            SifObject(DEFINITION, attributes["deffile"].encode()),
            SifObject(METADATA, metadata, INSPECT_NAME),
            SifObject(SBOM, documents[sbom.SPDX], sbom.SPDX, SPDX_JSON),
            SifObject(SBOM, documents[sbom.CYCLONEDX], sbom.CYCLONEDX, CYCLONEDX_JSON),
            SifObject(METADATA, provenance.statement(plan, subjects, builder), provenance.NAME),
        ]

    unique = uuid5(NAMESPACE_URL, plan.build_key).bytes
    return write_sif(target, system, plan.platform, parts, git.source_date_of_build(), unique)


def _attributes(plan: Plan, of_base: dict[str, Any]) -> dict[str, Any]:
    """Return what `apptainer inspect` will answer: the base's attributes, with our labels, apps and definition."""
    return {
        **of_base,
        "labels": {**(of_base.get("labels") or {}), **plan.labels()},
        "deffile": render.definition(plan.recipe, plan.base.pull, plan.labels(), context="."),
        "apps": {name: {"runscript": render.app_script()} for name in workloads_of(plan.recipe.name)},
    }
