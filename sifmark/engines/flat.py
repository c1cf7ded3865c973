"""The fast way to a flat SIF: convert the base once, append our layers, wrap.

`mksquashfs` appends new top-level folders to a copy of the converted base; nothing of the base is compressed twice, and
the image has one ordinary file system. Each stage is kept in the cache; what is appended to is always a pristine copy.
"""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sifmark import render
from sifmark.cache import BASES, LAYERS, STOCKED, Entry
from sifmark.console import step
from sifmark.files import write_json
from sifmark.images import workloads_of
from sifmark.layers import code_layer, site_layer
from sifmark.plan import Plan
from sifmark.run import run
from sifmark.settings import settings
from sifmark.sif import read_sif
from sifmark.sources import base_in_sources, require_whole

# Options of mksquashfs. Level 3 of zstd packs a torch image 20 times faster than gzip, into the same size.
COMPRESSION = {
    "zstd": ["-comp", "zstd", "-Xcompression-level", "3"],
    "gzip": ["-comp", "gzip"],
    "lz4": ["-comp", "lz4"],
    "xz": ["-comp", "xz"],
}
SQUASHFS, ATTRIBUTES = "root.squashfs", "attributes.json"  # files of a converted base
# `apptainer sif add` by number: data types, partition type and file system, and architectures.
_DEFINITION, _PARTITION, _METADATA = "1", "4", "6"
_ARCHITECTURES = {"x86_64": "2", "aarch64": "4"}
_DISK_REMEDY = "free space in the cache, temporary and dist folders; `inv doctor` shows what each has"


def build_flat(plan: Plan, target: Path, log: Path) -> None:
    """Make the SIF of a plan as `target`. Raises SifmarkError naming the stage's command and log."""
    stocked = stocked_base(plan, log)
    if stocked.seal() is None:  # each on its own, so that each knows how long it took
        converted_base(plan, log).ensure()
        site_layer(plan, log).ensure()
    stocked.ensure()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as name:
        folder = Path(name)
        code_layer(plan, folder / "layer")
        with step("append the code"):
            stocked.copy(folder)
            _append(folder / "layer", folder / SQUASHFS, log)
        with step("wrap as a SIF"):
            _wrap(plan, folder, target, log)


def converted_base(plan: Plan, log: Path | None = None) -> Entry:
    """The base as a squashfs with our fixed run script, environment, test and help, and its attributes."""
    return Entry(BASES, plan.base_key, partial(_convert, plan, log))


def stocked_base(plan: Plan, log: Path | None = None) -> Entry:
    """The converted base with the wheels appended."""
    return Entry(STOCKED, f"{plan.base_key[:32]}-{plan.site_key[:32]}", partial(_stock, plan, log))


def stages(plan: Plan) -> dict[str, Entry]:
    """All that the cache keeps of a build, by kind."""
    return {BASES: converted_base(plan), LAYERS: site_layer(plan), STOCKED: stocked_base(plan)}


def _convert(plan: Plan, log: Path | None, folder: Path) -> None:
    definition, image = folder / "base.def", folder / "base.sif"
    if layout := base_in_sources(plan.base):
        require_whole(layout, plan.base.digest)
        definition.write_text(render.base_definition(plan.recipe, str(layout), agent="oci"))
    else:
        definition.write_text(render.base_definition(plan.recipe, plan.base.pull))
    remedy = f"is the registry of {plan.base.address} up? `inv doctor` asks it. {_DISK_REMEDY}"
    with step(f"convert the base {plan.base.pull}") as progress:
        build_definition(plan, definition, image, log, progress.detail, remedy)
        converted = read_sif(image)
        converted.copy(converted.system, folder / SQUASHFS)
        write_json(folder / ATTRIBUTES, converted.attributes())
    image.unlink()
    definition.unlink()


def build_definition(
    plan: Plan, definition: Path, target: Path, log: Path | None, watch: Callable[[str], None], remedy: str = ""
) -> None:
    """`apptainer build` of a definition on a plan's base, with its compression. Raises CommandError."""
    command = ["apptainer", "build", "--force", "--notest"]
    command += [f"--mksquashfs-args={' '.join(COMPRESSION[plan.compression])}"]
    command += ["--no-https"] if plan.base.plain_http else []
    run([*command, target, definition], log=log, watch=watch, time_limit=settings().time_limit, remedy=remedy)


def _stock(plan: Plan, log: Path | None, folder: Path) -> None:
    base, site = converted_base(plan, log), site_layer(plan, log)
    base.ensure()
    with site.held() as layer, step("append the wheels"):
        base.copy(folder)
        _append(layer, folder / SQUASHFS, log)


def _append(layer: Path, squashfs: Path, log: Path | None) -> None:
    run(
        ["mksquashfs", layer, squashfs, "-all-root", "-no-progress", "-no-recovery"],
        log=log,
        time_limit=settings().time_limit,
        remedy=_DISK_REMEDY,
    )


def _wrap(plan: Plan, folder: Path, target: Path, log: Path) -> None:
    definition = folder / "definition"
    metadata = folder / "metadata.json"
    text = render.definition(plan.recipe, plan.base.pull, plan.labels(), context=".")
    definition.write_text(text)
    attributes = _attributes(plan, text, folder / ATTRIBUTES)
    metadata.write_text(json.dumps({"data": {"attributes": attributes}, "type": "container"}))
    options = {
        definition: ["--datatype", _DEFINITION],
        metadata: ["--datatype", _METADATA, "--filename", "inspect-metadata.json"],
        folder / SQUASHFS: ["--datatype", _PARTITION, "--parttype", "2", "--partfs", "1"]
        + ["--partarch", _ARCHITECTURES[plan.platform]],
    }
    run(["apptainer", "sif", "new", target], log=log, remedy=_DISK_REMEDY)
    for path, option in options.items():
        run(["apptainer", "sif", "add", *option, "--groupid", "1", target, path], log=log, remedy=_DISK_REMEDY)


def _attributes(plan: Plan, definition: str, of_base: Path) -> dict[str, Any]:
    """What `apptainer inspect` will answer: the base's own attributes, with our labels, apps and definition."""
    attributes: dict[str, Any] = json.loads(of_base.read_text())
    attributes["labels"] = {**(attributes.get("labels") or {}), **plan.labels()}
    attributes["deffile"] = definition
    attributes["apps"] = {name: {"runscript": render.app_script()} for name in workloads_of(plan.recipe.name)}
    return attributes
