"""The study.scaling command: speed-up and efficiency over devices and nodes, and where they bend."""

from collections.abc import Sequence

from sifmark.commands.answers import MARKDOWN as MARKDOWN_FORMAT
from sifmark.commands.answers import Table, answer
from sifmark.commands.compare import report_left_out
from sifmark.commands.study.paths import result_paths
from sifmark.core.console import output
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.comparison.tables import MARKDOWN, TEXT
from sifmark.studies.analysis.scaling import scaling_of
from sifmark.studies.analysis.scaling_report import COLUMNS, as_document, report_lines, rows_of


def show_scaling(paths: Sequence[str], study: str, results: str, limit: float, form: str) -> None:
    """Print each curve of some results. Raises SifmarkError if there is none."""
    if not 0 < limit <= 1:
        raise UsageError(f"--limit {limit:g} is no efficiency", "give a fraction, such as 0.9", code="invalid-option")
    curves, comparison = scaling_of(result_paths(paths, study, results))
    if curves and form == MARKDOWN_FORMAT:
        output("\n".join(report_lines(curves, MARKDOWN, limit)))
    elif curves or form == "json":
        table = Table(COLUMNS, rows_of(curves, limit))
        answer(form, as_document(curves, limit), table, lambda: output("\n".join(report_lines(curves, TEXT, limit))))
    report_left_out(comparison)
    if not curves:
        raise SifmarkError(
            "no two results differ only in the number of devices",
            "measure the same workload with --replicas 1, 2, 4 ...: with one --batch-size for strong scaling, or with "
            "the same batch for each replica for weak scaling",
            code="results-incomparable",
        )
