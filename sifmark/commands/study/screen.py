"""The study.screen command: nodes of a partition that failed or differ from the others."""

from dataclasses import dataclass, field
from pathlib import Path

from sifmark.commands.answers import MARKDOWN as MARKDOWN_FORMAT
from sifmark.commands.answers import Table, answer
from sifmark.commands.compare import KEPT, report_left_out
from sifmark.core.console import output, printable, status, warn
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import read_bounded, write_text
from sifmark.results.comparison.compare import Comparison
from sifmark.results.comparison.tables import MARKDOWN, TEXT
from sifmark.studies.analysis.node_names import expand
from sifmark.studies.analysis.screening import NODE_FIELDS, Limits, Screening, screen
from sifmark.studies.analysis.screening_report import (
    COLUMNS,
    as_document,
    drain_commands,
    report_lines,
    rows_of,
    safe_names,
)
from sifmark.studies.history.baseline import read_baseline

_LARGEST_LIST = 4 << 20  # bytes


class NodesNamedError(SifmarkError):
    """A screening names nodes, and was asked to fail then. The exit code is 7, as of the gate of `compare`."""

    exit_code = 7


@dataclass(frozen=True)
class ScreenRequest:
    """What is to be screened, against what, and when a node is named."""

    paths: tuple[str, ...]
    nodes: str = ""  # that should have results
    baseline: str = ""  # a path of results, or baseline:NAME
    by: str = "host"
    limits: Limits = field(default_factory=Limits)
    baselines: Path = Path("baselines")  # the folder of kept ones

    def screen(self) -> tuple[Screening, Comparison]:
        """Return the screening. Raises UsageError if a baseline or a path does not exist."""
        kind, colon, name = self.baseline.partition(":")
        kept = read_baseline(self.baselines, name) if colon and kind == KEPT else None
        against = "" if kept else self.baseline
        expected = expected_nodes(self.nodes)
        return screen(self.paths, expected, against, self.limits, NODE_FIELDS[self.by], kept)


def screen_nodes(request: ScreenRequest, list_file: str = "", *, form: str = "table", fail: bool = False) -> None:
    """Print a screening. Raises NodesNamedError with `fail` if it names a node."""
    limits = request.limits
    if not 0 < limits.level < 1 or not 0 <= limits.least < 1:
        remedy = "for example --level 0.01 --least 0.02"
        raise UsageError("--level and --least are fractions", remedy, code="invalid-option")
    screening, comparison = request.screen()
    if form == MARKDOWN_FORMAT:
        output("\n".join(report_lines(screening, MARKDOWN)))
    else:
        table = Table(COLUMNS, rows_of(screening))
        answer(form, as_document(screening), table, lambda: output("\n".join(report_lines(screening, TEXT))))
    report_left_out(comparison)
    _hand_over(screening, list_file)
    if fail and screening.named:
        names = ", ".join(map(printable, screening.named))
        raise NodesNamedError(f"nodes are named: {names}", "the table above says why", code="nodes-named")


def expected_nodes(text: str) -> tuple[str, ...]:
    """Return the names in a list as Slurm writes it, or in a file with a list on each line."""
    if not text:
        return ()
    if not Path(text).is_file():
        return expand(text)
    try:
        lines = read_bounded(Path(text), _LARGEST_LIST).decode().split()
    except (OSError, ValueError) as error:
        raise UsageError(f"{text}: {error}", "give a text file with node names", code="file-unreadable") from error
    return tuple(name for line in lines for name in expand(line))


def _hand_over(screening: Screening, list_file: str) -> None:
    """Write the list for a scheduler, and print the commands for its administrator."""
    names = safe_names(screening)
    for node in sorted(set(screening.named) - set(names)):
        warn(f"{printable(node)!r} is no name of a host, and is not listed")
    if list_file:
        write_text(Path(list_file), "".join(f"{name}\n" for name in names))
        status(f"named in {list_file}: {len(names)}")
    if names:
        status("to take them out of service, an administrator runs:")
    for command in drain_commands(screening):
        status(f"  {command}")
