"""Accelerators of this host by PCI address and NUMA node, in use or not. Linux."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmark.core.checks import Check, Status
from sifmark.recipes.hardware import all_hardware

PCI = Path("/sys/bus/pci/devices")
NUMA = Path("/sys/devices/system/node")


class Card(NamedTuple):
    """An accelerator. `numa_node` is None where the kernel names none."""

    kind: str
    address: str
    numa_node: int | None


def cards() -> Iterator[Card]:
    """Yield the accelerators of this host, by address."""
    for path in sorted(PCI.glob("*")):
        with suppress(OSError):
            vendor, pci_class = ((path / name).read_text().strip() for name in ("vendor", "class"))
            for hardware in all_hardware():
                if vendor == hardware.pci_vendor and pci_class.startswith(hardware.pci_classes):
                    yield Card(hardware.device, path.name, _numa_node(path))


def check_host_devices(kind: str) -> Iterator[Check]:
    """List the accelerators of a kind that the host has, in use or not."""
    devices = [_text(card) for card in cards() if card.kind == kind]
    if devices:
        yield Check("host's cards", Status.PASSED, f"{len(devices)}: {', '.join(devices)}")


def check_numa_nodes() -> Iterator[Check]:
    """List accelerators with the processors near them, if there are any: where a rank is best bound to."""
    by_node: dict[int | None, list[str]] = defaultdict(list)
    for card in cards():
        by_node[card.numa_node].append(card.address)
    for node, addresses in by_node.items():
        where = "no NUMA node" if node is None else f"NUMA node {node}{_processors(node)}"
        yield Check("devices", Status.PASSED, f"{where}: {', '.join(addresses)}")


def _text(card: Card) -> str:
    return card.address if card.numa_node is None else f"{card.address} on NUMA node {card.numa_node}"


def _numa_node(path: Path) -> int | None:
    with suppress(OSError, ValueError):  # a kernel without NUMA
        if (node := int((path / "numa_node").read_text())) >= 0:
            return node
    return None


def _processors(node: int) -> str:
    with suppress(OSError):
        return f", processors {(NUMA / f'node{node}' / 'cpulist').read_text().strip()}"
    return ""
