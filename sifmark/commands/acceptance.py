"""The command study.accept: measure for a contract, and judge results by it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, list_left_out
from sifmark.commands.studies import PLACES, SLURM
from sifmark.commands.study_analysis import partition_nodes
from sifmark.core.console import counted, printable
from sifmark.core.errors import UsageError
from sifmark.core.files import write_json, write_text
from sifmark.core.terminal import output, output_table, paint, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.studies.acceptance.contract import Contract
    from sifmark.studies.acceptance.judge import Acceptance, Evidence, References

_SHOWN = ("clause", "node", "verdict", "repeats", "value", "interval", "limit", "detects")
DOCUMENT, PAGE = "acceptance.json", "index.html"


@cli.command("study.accept", example="study.accept contract.toml --plan")
@cli.argument("contract", "A contract: a TOML file.", "CONTRACT", completes="file")
@cli.results_argument(required=False)
@cli.flag("--init", "Write an example of a contract to begin with.", "beginning")
@cli.flag("--plan", "Show what the repeats can detect, and how many a shortfall needs.", "planning")
@cli.option("--on", "Measure: on this machine, or as jobs of Slurm.", choices=PLACES, name="place")
@cli.option("--nodes", "Nodes to measure, as Slurm writes them, or a file with names.", "NODES")
@cli.option("--partition", "Partition of Slurm; without --nodes all of its nodes.", "NAME")
@cli.option("--image", "Image of the nodes.", "IMAGE")
@cli.option("--devices", "Devices of a node.", "N", least=1)
@cli.results_folder_option
@cli.flag("--dry-run", "With --on: print commands or job scripts only.", "-n")
@cli.output_option("Folder for study, page and document. [default: CONTRACT-acceptance]", "FOLDER", "folder")
@cli.option("--key", "Private key in PEM form, which signs. [default: results_key]", "FILE")
@cli.format_option
def accept(
    settings: Settings,
    contract: str,
    paths: Sequence[str] = (),
    beginning: bool = False,
    planning: bool = False,
    place: str = "",
    nodes: str = "",
    partition: str = "",
    image: str = "",
    devices: int = 0,
    results: str = "results",
    dry_run: bool = False,
    folder: str = "",
    key: str = "",
    form: str = TABLE,
) -> None:
    """Judge results by a contract: pass, fail or cannot tell.

    Without results those of the contract's own study count, which --on runs. Exits with 7 if a clause failed, and with
    8 if one cannot be told.
    """
    from sifmark.studies.acceptance.contract import Contract
    from sifmark.studies.acceptance.judge import judge

    if beginning:
        _begin(Path(contract))
        return
    agreed = Contract.read(Path(contract))
    target = Path(folder or f"{agreed.name}-acceptance")
    study = _study_file(agreed, settings, target, nodes, partition, image, devices)
    if place:
        _measure(settings, study, Path(results), place, dry_run, form)
        if place == SLURM or dry_run:
            status(f"when the runs have ended: sifmark study.accept {shlex.quote(contract)}")
            return
    evidence = _evidence(agreed, study, paths, results, planning)
    references = _references(agreed, settings, planning)
    if planning:
        _show_plan(agreed, evidence, references, form)
        return
    acceptance = judge(agreed, evidence, references)
    document = _write(acceptance, target, Path(key) if key else settings.results_key)
    _show(acceptance, document, form)
    status(f"written: {printable(str(target / PAGE))}")
    acceptance.require_accepted()


def _begin(file: Path) -> None:
    from sifmark.studies.acceptance.template import TEMPLATE
    from sifmark.studies.study_file import require_name

    require_name(file)
    if file.exists():
        raise UsageError(f"{file} exists already", "name another file, or remove it", code="invalid-option")
    write_text(file, TEMPLATE)
    status(f"{printable(str(file))}. What its repeats can show: sifmark study.accept {shlex.quote(str(file))} --plan")


def _study_file(
    contract: Contract, settings: Settings, folder: Path, nodes: str, partition: str, image: str, devices: int
) -> Path:
    """Write the study of a contract, for the places that are named, else for those of an earlier command."""
    from sifmark.studies.acceptance.contract import Place, write_study
    from sifmark.studies.analysis.node_names import nodes_of
    from sifmark.studies.load import load_study

    file = folder / f"{contract.name}.toml"
    if not image and (nodes or partition):
        raise UsageError("which image do the nodes run?", "name it: --image cuda", code="argument-missing")
    names = tuple(partition_nodes(partition)) if partition and not nodes else nodes_of(nodes)
    place = Place(names, image or "cpu", devices, partition, tuple(settings.slurm.get("extra", ())))
    if file.exists() and not (nodes or partition or image or devices):
        place = Place.of_study(file)
    write_study(contract, place, folder)
    load_study(str(file))  # which says what is wrong with the runs of clauses
    return file


def _measure(settings: Settings, study: Path, results: Path, place: str, dry_run: bool, form: str) -> None:
    """Submit what is missing of a study, do it here, or only show what would be done."""
    from sifmark.commands.study_views import StudyDisplay, show_arrays, show_commands
    from sifmark.doctor.load import LoadSample, hardware_here, report_load
    from sifmark.studies.library import Study
    from sifmark.studies.plan import Request

    chosen = Study(Request(str(study), results=results), settings)
    if place == SLURM:
        show_arrays(chosen.submit(dry_run=dry_run), dry_run, form)
    elif dry_run:
        show_commands(chosen.commands(), form)
    else:
        report_load(LoadSample(), hardware_here(), 0.0)
        for planned, reason in chosen.run(watcher=StudyDisplay(plain=False)).failed:
            warn(f"{planned.run.group}: {reason}")


def _evidence(contract: Contract, study: Path, paths: Sequence[str], results: str, planning: bool) -> Evidence:
    """Return the results of a contract. A plan needs none. Raises UsageError if there are none to judge."""
    from sifmark.studies.acceptance.judge import gather
    from sifmark.studies.expand import expand
    from sifmark.studies.folder import folder_of, system_folders
    from sifmark.studies.load import load_study

    loaded = load_study(str(study))
    own = system_folders(folder_of(loaded, Path(results)))
    if not (paths or own or planning):
        remedy = (
            f"measure: sifmark study.accept {shlex.quote(str(contract.file))} --on here --image cuda; or name results"
        )
        raise UsageError(f"there are no results of {contract.name}", remedy, code="result-missing")
    return gather(expand(loaded, loaded.systems), paths or tuple(map(str, own)))


def _references(contract: Contract, settings: Settings, planning: bool) -> References:
    """Return the baselines of a contract. A plan presumes one that is not here yet. Raises UsageError otherwise."""
    from sifmark.results.comparison.query import KEPT
    from sifmark.results.load import load_results
    from sifmark.results.marks import FEWEST_REPEATS
    from sifmark.studies.acceptance.judge import References
    from sifmark.studies.history.baseline import read_baseline

    kept, results = {}, {}
    for name in dict.fromkeys(each.baseline for each in contract.clauses if each.ratio is not None):
        kind, colon, rest = name.partition(":")
        try:
            if colon and kind == KEPT:
                kept[name] = read_baseline(settings.baselines, rest)
            else:
                results[name] = list(load_results(name))
        except UsageError as error:
            if not planning:
                raise
            warn(f"{printable(error.cause)}: the plan presumes {FEWEST_REPEATS} repeats in one session")
    return References(results, kept)


def _show_plan(contract: Contract, evidence: Evidence, references: References, form: str) -> None:
    from sifmark.studies.acceptance.document import PLAN_COLUMNS, percent, plan_document, plan_rows
    from sifmark.studies.acceptance.plan import plan_of

    plans = plan_of(contract, evidence, references)
    table = Table(PLAN_COLUMNS, list(plan_rows(plans, contract.repeats)))
    answer(form, plan_document(plans, contract.repeats), table)
    status(
        f"detects: the shortfall that {contract.repeats} repeats in one session show with a probability of "
        f"{percent(contract.power)}; needs: what a shortfall of {percent(contract.shortfall)} takes"
    )
    runs = contract.rows * contract.repeats
    status(f"{counted(runs, 'run')}: {counted(len(contract.clauses), 'clause')}, {counted(contract.nodes, 'node')}")


def _write(acceptance: Acceptance, folder: Path, key: Path | None) -> dict[str, Any]:
    """Write document, signature and page, and return the document."""
    from sifmark.report.acceptance import acceptance_page
    from sifmark.results.envelope import ACCEPTANCE, envelope_path, sign_document
    from sifmark.results.load import REPORT_MARKER
    from sifmark.studies.acceptance.document import as_document

    document = as_document(acceptance)
    file = folder / DOCUMENT
    folder.mkdir(parents=True, exist_ok=True)
    envelope_path(file).unlink(missing_ok=True)  # that of an earlier verdict
    write_json(file, document)
    write_text(folder / REPORT_MARKER, "")  # no JSON file here is a result
    if key is not None:
        contract = {"contract": acceptance.contract.sha256, "verdict": acceptance.verdict}
        sign_document(file, key, ACCEPTANCE, contract)
    write_text(folder / PAGE, acceptance_page(acceptance, document, key is not None))
    return document


def _show(acceptance: Acceptance, document: dict[str, Any], form: str) -> None:
    from sifmark.studies.acceptance.document import COLUMNS, rows_of

    rows = list(rows_of(acceptance))
    places = [COLUMNS.index(name) for name in _SHOWN]

    def show() -> None:
        output(f"{printable(acceptance.contract.title)}: {paint(str(acceptance.verdict))}")
        output_table(*_SHOWN, rows=[[printable(str(row[place])) for place in places] for row in rows])
        for each in acceptance.clauses:
            if each.reason:
                output(f"{printable(each.clause.name)}: {printable(each.reason)}")

    answer(form, document, Table(COLUMNS, rows), show, "Acceptance")
    list_left_out(map(printable, acceptance.invalid), label="not valid")
    if acceptance.unused:
        status(f"{counted(acceptance.unused, 'result is', 'results are')} of no clause")
