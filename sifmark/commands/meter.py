"""The command that meters another command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.core.console import counted, printable
from sifmark.core.errors import UsageError
from sifmark.core.terminal import detail, output, status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.metering import Document

STDOUT = "-"


@cli.command("meter", example="meter --output energy.json -- python train.py")
@cli.words_argument("command to meter")
@cli.option(
    "--meter",
    "Only this meter: rapl, nvml:0, replay:FILE. Repeatable. [default: every one that is here]",
    "NAME",
    name="choices",
    multiple=True,
)
@cli.option("--period", "Seconds between two readings. [default: 0.1]", "SECONDS", kind=float)
@cli.option(
    "--bmc",
    "Also ask this BMC, by Redfish: a TOML file of mode 600 with url, user and password.",
    "FILE",
    completes="file",
)
@cli.output_option("Also write a JSON document to this file; with a / at the end, one of each rank.", "FILE", "target")
@cli.option("--sum", "Instead add up what the ranks of a launch wrote to this folder.", "FOLDER", name="summed")
def meter_command(
    arguments: Sequence[str] = (),
    choices: Sequence[str] = (),
    period: float | None = None,
    bmc: str = "",
    target: str = "",
    summed: str = "",
) -> None:
    """Meter the energy of any command by every meter of this host.

    The command keeps its input, its output and its exit code; energy goes to stderr. What a meter covers, and which are
    missing and why, is in the document, and with -v on stderr.
    """
    from sifmark.core.process import run_foreground
    from sifmark.metering import PERIOD, meter, place_of

    if summed:
        _sum(summed, arguments, target)
        return
    if not arguments:
        remedy = "for example: sifmark meter -- python train.py"
        raise UsageError("the command to meter is missing", remedy, code="argument-missing")
    place = place_of(target) if target and target != STDOUT else target
    with meter(*choices, period=PERIOD if period is None else period, bmc=bmc) as energy:
        code = run_foreground(arguments, {})
    energy.document |= {"command": list(map(printable, arguments)), "exit_code": code}
    _show(energy.document)
    _write(place, energy.document)
    sys.exit(code)


def _write(place: Path | str, document: Document) -> None:
    from sifmark.core.files import write_json

    if place == STDOUT:
        output(json.dumps(document, indent=2, sort_keys=True, allow_nan=False))
    elif place:
        write_json(Path(place), document)


def _show(document: Document) -> None:
    ended = "" if document["exit_code"] is None else f", exit code {document['exit_code']}"
    status(f"metered {document['seconds']:.1f} s on {printable(document['host'])}{ended}")
    for each in document["meters"]:
        played = " (simulated)" if each["simulated"] else ""
        devices = counted(len(each["devices"]), "device")
        status(f"  {each['source']}{played}: {_energy(each)}; {each['scope']}, {devices}, {_sampling(each)}")
    if not document["meters"] and not any(each["elsewhere"] for each in document["missing"]):
        status("  no meter; -v says why")
    for each in document["missing"]:
        (status if each["elsewhere"] else detail)(f"  not {each['meter']}: {printable(each['reason'])}")


def _energy(each: Document) -> str:
    from sifmark.results.numbers import format_quantity

    if (joules := each["energy"]["value"]) is None:
        return f"no energy: {each['energy']['reason']}"
    peak = each.get("power_peak", {}).get("value")
    most = "" if peak is None else f", peak {format_quantity(peak, 'W')}"
    return f"{format_quantity(joules, 'J')}, mean {format_quantity(each['power_mean']['value'], 'W')}{most}"


def _sampling(each: Document) -> str:
    failed = f", {each['failed_readings']} failed" if each["failed_readings"] else ""
    return f"{each['method'] or 'read'} every {each['sampling_period_seconds']:g} s{failed}"


def _sum(folder: str, arguments: Sequence[str], target: str) -> None:
    """Print the energy of all ranks, or write it to a file."""
    from sifmark.metering import read_documents, sum_of_ranks

    if arguments:
        raise UsageError("--sum takes no command", "meter first, then add up", code="invalid-option")
    document = sum_of_ranks(read_documents([folder]))
    if target:
        _write(target, document)
        return
    output(f"{document['documents']} of {counted(document['ranks'], 'rank')} on {counted(document['hosts'], 'host')}")
    for each in document["meters"]:
        played = " (simulated)" if each["simulated"] else ""
        output(printable(f"{each['source']}{played}: {_energy(each)}; {counted(each['devices'], each['scope'])}"))
