"""The study.nodes command: a study that runs on every node of a partition at once."""

from pathlib import Path

from sifmark.commands.study.screen import expected_nodes
from sifmark.core.console import output, status, warn
from sifmark.core.errors import UsageError
from sifmark.core.files import write_text
from sifmark.core.settings import Settings
from sifmark.studies.analysis.every_node import NodeSystem, nodes_of_partition, study_on_nodes


def write_study(
    study: str, nodes: str, partition: str, image: str, devices: int, target: str, settings: Settings
) -> None:
    """Write a study with a system for each node, or print it."""
    if not nodes and not partition:
        raise UsageError("no nodes are given", "--nodes 'n[01-16]', or --partition NAME", code="argument-missing")
    names = list(expected_nodes(nodes)) if nodes else _of_partition(partition)
    extra = tuple(settings.slurm.get("extra", ()))
    text = study_on_nodes(study, names, NodeSystem(image, devices, partition, extra))
    if not target:
        output(text.rstrip("\n"))
        return
    if not target.endswith(".toml"):
        raise UsageError(f"--output {target} is no study file", "end its name in .toml", code="invalid-option")
    write_text(Path(target), text)
    status(f"{target} has {len(names)} nodes; run it: sifmark study.run {target} --on slurm")


def _of_partition(partition: str) -> list[str]:
    names, out = nodes_of_partition(partition)
    for node, state in out.items():
        warn(f"{node} is {state}, and is left out")
    if not names:
        raise UsageError(f"no node of partition {partition} takes jobs", "sinfo says why", code="argument-missing")
    return names
