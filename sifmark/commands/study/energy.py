"""The study.energy command: the energy of whole jobs next to that of our own meters, with cost and carbon."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmark.commands.answers import MARKDOWN as MARKDOWN_FORMAT
from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.comparison.tables import MARKDOWN, TEXT
from sifmark.results.load import load_all
from sifmark.studies.analysis.energy import (
    COLUMNS,
    UNKNOWN_SCOPE,
    EnergyPrices,
    EnergyRow,
    MeasuredEnergy,
    MeteredRun,
    as_document,
    metered_run,
    report_lines,
    rows_of,
)
from sifmark.studies.analysis.energy_sources import ask_sacct, read_pdu, read_sacct, rows_of_jobs, rows_of_pdu, zone_of

_NO_OTHER = "no other source was given: --sacct, --job-ids or --pdu"


@dataclass(frozen=True)
class EnergySource:
    """Where the energy of the whole comes from: at most one of the first three."""

    sacct: str = ""
    job_ids: str = ""
    pdu: str = ""
    covers: str = ""  # by a PDU
    time_zone: str = ""
    clock_offset: float = 0.0  # seconds

    def rows(self, runs: Sequence[MeteredRun]) -> list[EnergyRow]:
        """Return the energies. Raises UsageError for several sources, or one that cannot be read."""
        if sum(map(bool, (self.sacct, self.job_ids, self.pdu))) > 1:
            cause = "the energy of the whole is given by several sources"
            raise UsageError(cause, "choose --sacct, --job-ids or --pdu", code="invalid-option")
        zone = zone_of(self.time_zone)
        if self.pdu:
            covers = self.covers or UNKNOWN_SCOPE
            return rows_of_pdu(runs, read_pdu(Path(self.pdu), zone, self.clock_offset), covers)
        if self.sacct:
            return rows_of_jobs(runs, read_sacct(Path(self.sacct), zone), self.clock_offset)
        if self.job_ids:
            ids = [job.strip() for job in self.job_ids.split(",") if job.strip()]
            return rows_of_jobs(runs, ask_sacct(ids), self.clock_offset)
        nothing = MeasuredEnergy(None, None, UNKNOWN_SCOPE, _NO_OTHER)
        return [EnergyRow(run.label, (run,), run.own, nothing) for run in runs]


def show_energy(paths: Sequence[str], source: EnergySource, prices: EnergyPrices, form: str) -> None:
    """Print the energies of runs or jobs. Raises SifmarkError if a result is not valid, after the answer."""
    results = list(load_all(paths))
    runs = [metered_run(result.file, result.document) for result in results if not result.problems]
    rows = source.rows(runs)
    if form == MARKDOWN_FORMAT:
        output("\n".join(report_lines(rows, prices, MARKDOWN)))
    else:
        table = Table(COLUMNS, rows_of(rows, prices))
        text = "\n".join(report_lines(rows, prices, TEXT))
        answer(form, as_document(rows, prices), table, lambda: output(text))
    invalid = [f"{printable(each.file)}: {printable(each.problems[0])}" for each in results if each.problems]
    for line in invalid:
        status(f"excluded: {line}")
    if invalid:
        cause = f"{len(invalid)} documents are not valid"
        raise SifmarkError(cause, "repair or remove them: sifmark results.validate", code="result-invalid")
