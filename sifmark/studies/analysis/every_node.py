"""A copy of a study file with a system for each node, pinned to it by Slurm's --nodelist."""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import tomlkit

from sifmark.core.errors import UsageError
from sifmark.core.process import run
from sifmark.studies.load import load_study
from sifmark.studies.study_file import find_study

OUT_OF_SERVICE = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "boot", "reboot", "power", "no_respond")
_LONGEST_NAME = 64  # of a system, which names a folder too
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SINFO_LIMIT = 60.0  # seconds


@dataclass(frozen=True)
class NodeSystem:
    """What the systems of all nodes have in common, beside what the study's first system has."""

    image: str = ""
    devices: int = 0  # of a node; 0: as in the study
    partition: str = ""
    extra: tuple[str, ...] = ()  # options of sbatch that the site has in sifmark.toml, which those of a system replace


def study_on_nodes(study: str, nodes: Sequence[str], common: NodeSystem) -> str:
    """Return a study's file with a system for each node in place of its own, in variants too.

    Raises UsageError for a bad node name, or a study without an image.
    """
    bad = next((name for name in nodes if not _NODE_NAME.fullmatch(name) or len(name) > _LONGEST_NAME), None)
    if bad is not None or not nodes:
        cause = f"{bad!r} is no name of a node" if bad is not None else "no nodes are given"
        raise UsageError(cause, "name them as Slurm does: --nodes 'n[01-16]'", code="invalid-option")
    load_study(study)  # which says what is wrong with it
    document: dict[str, Any] = tomlkit.parse(find_study(study).read_text(encoding="utf-8"))
    variants = [table for table in document.get("variant", {}).values() if "system" in table]
    base: Mapping[str, Any] = next(iter(document.get("system", ())), {})
    if not (common.image or base.get("image")):
        raise UsageError(f"{study} names no image", "name it: --image cuda", code="argument-missing")
    for table in variants:
        table["system"] = _systems(table["system"][0], nodes, replace(common, image=""))
    for group in document.get("run", ()):
        group.pop("systems", None)
    document.pop("system", None)
    document["system"] = _systems(base, nodes, common)
    return tomlkit.dumps(document)


def nodes_of_partition(partition: str) -> tuple[list[str], dict[str, str]]:
    """Return the nodes of a partition that take jobs, and the others with their states, as Slurm says."""
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %T", f"--partition={partition}"]
    remedy = "is Slurm here, and is it the right partition? Or name the nodes: --nodes 'n[01-16]'"
    lines = run(argv, time_limit=_SINFO_LIMIT, remedy=remedy).output.splitlines()
    states = dict(line.split(maxsplit=1) for line in lines if " " in line)
    out = {node: state for node, state in states.items() if state.startswith(OUT_OF_SERVICE) or state.endswith("*")}
    return [node for node in states if node not in out], out


def _systems(base: Mapping[str, Any], nodes: Sequence[str], common: NodeSystem) -> Any:
    systems = tomlkit.aot()
    for node in nodes:
        systems.append(tomlkit.item(_system(base, node, common)))
    return systems


def _system(base: Mapping[str, Any], node: str, common: NodeSystem) -> dict[str, Any]:
    system = {key: deepcopy(value) for key, value in base.items() if key not in ("name", "title", "nodes")}
    slurm = dict(system.pop("slurm", {}))
    slurm["extra"] = [*slurm.get("extra", common.extra), f"--nodelist={node}"]
    if common.partition:
        slurm["partition"] = common.partition
    given = {"image": common.image, "devices": common.devices}
    system |= {name: value for name, value in given.items() if value}
    inline = tomlkit.inline_table()
    inline.update(slurm)
    return {"name": node, "nodes": 1, **system, "slurm": inline}
