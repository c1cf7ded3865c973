"""The quick screening of study.screen: one line, an exit code, and files for monitoring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import printable
from sifmark.core.files import write_text
from sifmark.core.terminal import output, status
from sifmark.results.numbers import format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.doctor.quick.screen import QuickScreening

COLUMNS = ("test", "measure", "value", "usual", "ratio", "deviations", "earlier", "worse")


def screen_quickly(
    settings: Settings,
    paths: Sequence[str],
    image: str,
    node: str,
    devices: int,
    time_limit: str,
    least: float | None,
    textfile: str,
    fail: bool,
    form: str,
) -> None:
    """Screen this node and print one line, as the options of study.screen say. Nothing but files is changed."""
    from sifmark.core.errors import UsageError
    from sifmark.doctor.quick import fleet, screen
    from sifmark.doctor.quick.textfile import openmetrics
    from sifmark.studies.running.budget import parse_budget

    folder = fleet.require_folder(tuple(paths))
    if not image:
        raise UsageError("which image tests the node?", "name it: --image cuda", code="argument-missing")
    name = node or screen.this_node()
    fleet.require_name(name)
    limit = parse_budget(time_limit) if time_limit else screen.LIMIT
    screening = screen.screen_node(
        folder, image, settings, name, devices, limit, fleet.LEAST if least is None else least
    )
    rows = [
        (each.test, each.measure, each.value, each.usual, each.ratio, each.distance, each.earlier, each.worse)
        for each in screening.findings
    ]
    document = screening.document() | {"node": screening.node, "line": screening.line()}
    answer(form, document, Table(COLUMNS, rows), lambda: output(printable(screening.line())))
    if form == TABLE:
        _say_more(screening)
    if textfile:
        write_text(Path(textfile), openmetrics(screening))
    if fail:
        screening.require_healthy()


def _say_more(screening: QuickScreening) -> None:
    """Say what was measured, what is not counted here, and what an administrator may run."""
    from sifmark.doctor.quick.fleet import NAMED

    for each in screening.findings:
        value = format_quantity(each.value, each.unit)
        usual = f", usually {format_quantity(each.usual, each.unit)}" if each.usual else ""
        status(f"  {each.test} {each.measure}: {value}{usual}")
    for rise in screening.rises:
        status(f"  {printable(str(rise))}")
    if screening.counters.missing:
        status(f"  not counted here: {', '.join(screening.counters.missing)}")
    if screening.counters.sequence is None:
        status("  the kernel's log may not be read: faults in it were not looked for")
    if screening.verdict == NAMED:
        status("to take it out of service, an administrator runs:")
        status(f"  {printable(screening.drain_command())}")
