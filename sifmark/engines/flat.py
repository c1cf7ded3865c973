"""The fast way to a flat SIF: convert the base once, append our layers, wrap.

`mksquashfs` appends new top-level folders to a copy of the converted base; nothing of the base is compressed twice, and
the image has one ordinary file system. Each stage is kept in the cache; what is appended to is always a pristine copy.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sifmark import render
from sifmark.console import step
from sifmark.files import beside
from sifmark.images import workloads_of
from sifmark.layers import code_layer, site_layer
from sifmark.plan import Plan
from sifmark.run import run
from sifmark.settings import settings
from sifmark.sif import read_sif

# Options of mksquashfs. Level 3 of zstd packs a torch image 20 times faster than gzip, into the same size.
COMPRESSION = {
    "zstd": ["-comp", "zstd", "-Xcompression-level", "3"],
    "gzip": ["-comp", "gzip"],
    "lz4": ["-comp", "lz4"],
    "xz": ["-comp", "xz"],
}
# `apptainer sif add` by number: data types, partition type and file system, and architectures.
_DEFINITION, _PARTITION, _METADATA = "1", "4", "6"
_ARCHITECTURES = {"x86_64": "2", "aarch64": "4"}
_DISK_REMEDY = "free space in the cache, temporary and dist folders; `inv doctor` shows what each has"


def build_flat(plan: Plan, target: Path, log: Path) -> None:
    """Make the SIF of a plan as `target`. Raises SifmarkError naming the stage's command and log."""
    stocked = _stocked(plan, log)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as name:
        folder = Path(name)
        layer = folder / "layer"
        code_layer(plan, layer)
        squashfs = folder / "root.squashfs"
        with step("append the code"):
            shutil.copyfile(stocked, squashfs)
            _append(layer, squashfs, log)
        with step("wrap as a SIF"):
            _wrap(plan, squashfs, folder, target, log)


def converted_base(plan: Plan) -> Path:
    """Where the cache keeps the converted base of a plan, `root.squashfs` and `attributes.json`, if it was made."""
    return settings().cache / "bases" / plan.base_key


def _base(plan: Plan, log: Path) -> Path:
    """The base as a squashfs with our fixed run script, environment, test and help; once per digest."""
    folder = converted_base(plan)
    if folder.is_dir():
        return folder
    with step(f"convert the base {plan.base.pull}") as progress, beside(folder) as draft:
        draft.mkdir()
        definition, image = draft / "base.def", draft / "base.sif"
        definition.write_text(render.base_definition(plan.recipe, plan.base.pull))
        command = ["apptainer", "build", "--force", "--notest"]
        command += [f"--mksquashfs-args={' '.join(COMPRESSION[plan.compression])}"]
        command += ["--no-https"] if plan.base.plain_http else []
        run(
            [*command, image, definition],
            log=log,
            watch=progress.detail,
            time_limit=settings().time_limit,
            remedy=f"is the registry of {plan.base.address} up? `inv doctor` asks it. {_DISK_REMEDY}",
        )
        converted = read_sif(image)
        converted.copy(converted.system, draft / "root.squashfs")
        (draft / "attributes.json").write_text(json.dumps(converted.attributes()))
        image.unlink()
    return folder


def _stocked(plan: Plan, log: Path) -> Path:
    """The converted base with the wheels appended; once per base and lock."""
    target = settings().cache / "stocked" / f"{plan.base_key[:32]}-{plan.site_key[:32]}.squashfs"
    if target.is_file():
        return target
    base = _base(plan, log) / "root.squashfs"
    site = site_layer(plan, log)
    with step("append the wheels"), beside(target) as draft:
        shutil.copyfile(base, draft)
        _append(site, draft, log)
    return target


def _append(layer: Path, squashfs: Path, log: Path) -> None:
    run(
        ["mksquashfs", layer, squashfs, "-all-root", "-no-progress", "-no-recovery"],
        log=log,
        time_limit=settings().time_limit,
        remedy=_DISK_REMEDY,
    )


def _wrap(plan: Plan, squashfs: Path, folder: Path, target: Path, log: Path) -> None:
    definition = folder / "definition"
    metadata = folder / "metadata.json"
    text = render.definition(plan.recipe, plan.base.pull, plan.labels(), context=".")
    definition.write_text(text)
    metadata.write_text(json.dumps({"data": {"attributes": _attributes(plan, text, log)}, "type": "container"}))
    options = {
        definition: ["--datatype", _DEFINITION],
        metadata: ["--datatype", _METADATA, "--filename", "inspect-metadata.json"],
        squashfs: ["--datatype", _PARTITION, "--parttype", "2", "--partfs", "1"]
        + ["--partarch", _ARCHITECTURES[plan.platform]],
    }
    run(["apptainer", "sif", "new", target], log=log, remedy=_DISK_REMEDY)
    for path, option in options.items():
        run(["apptainer", "sif", "add", *option, "--groupid", "1", target, path], log=log, remedy=_DISK_REMEDY)


def _attributes(plan: Plan, definition: str, log: Path) -> dict[str, Any]:
    """What `apptainer inspect` will answer: the base's own attributes, with our labels, apps and definition."""
    attributes: dict[str, Any] = json.loads((_base(plan, log) / "attributes.json").read_text())
    attributes["labels"] = {**(attributes.get("labels") or {}), **plan.labels()}
    attributes["deffile"] = definition
    attributes["apps"] = {name: {"runscript": render.app_script()} for name in workloads_of(plan.recipe.name)}
    return attributes
