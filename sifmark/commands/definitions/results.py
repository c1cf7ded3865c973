"""Commands for results."""

from typing import Annotated

from sifmark.commands.definition import ENGINE, Format, Keys, Option, command
from sifmark.commands.definitions.main import Results
from sifmark.core.settings import Settings


@command("results.show", example="results.show results/", former="show")
def show(
    paths: Results,
    all_metrics: Annotated[bool, Option("Also name the metrics without a value, and why.")] = False,
    format_: Format = "table",
) -> None:
    """Print a summary of results."""
    from sifmark.commands.results.show import show_results

    show_results(paths, format_, every_metric=all_metrics)


@command("results.validate", example="results.validate results/", former="validate")
def validate(
    paths: Results,
    finished: Annotated[bool, Option("Fail also unless each run completed or ran out of memory.")] = False,
    run: Annotated[str, Option("Fail also for results of other runs of a study than that with this key.", "KEY")] = "",
    format_: Format = "table",
) -> None:
    """Check results against the schema that they name."""
    from sifmark.commands.results.validate import validate_results

    validate_results(paths, format_, finished, run)


@command("results.sign", example="results.sign results/ --key site.pem")
def sign(
    settings: Settings,
    paths: Results,
    key: Annotated[str, Option("Private key in PEM form. [default: results_key]", "FILE", completes="file")] = "",
    format_: Format = "table",
) -> None:
    """Sign result files: a signed statement goes beside each."""
    from sifmark.commands.results.sign import sign_files

    sign_files(paths, key, settings, format_)


@command("results.verify", example="results.verify results/ --key site.pub")
def verify(
    settings: Settings,
    paths: Results,
    key: Keys = (),  # noqa: ARG001 - it is in the settings
    format_: Format = "table",
) -> None:
    """Check that result files are signed by a trusted key."""
    from sifmark.commands.results.sign import verify_files

    verify_files(paths, settings, format_)


@command("results.trace", ENGINE, example="results.trace result.json", former="trace")
def trace(
    settings: Settings,
    paths: Results,
    image: Annotated[
        str, Option("The image that ran. [default: the recipe's image here]", "NAME", completes="image")
    ] = "",
    require: Annotated[
        str, Option("Fail unless these links are verified, with commas. [with CI set: image]", "LINKS")
    ] = "",
    key: Keys = (),  # noqa: ARG001 - it is in the settings
    format_: Format = "table",
) -> None:
    """Trace results back to image, SBOM, recipe and commit."""
    from sifmark.commands.results.trace import trace_results

    trace_results(paths, image, settings, format_, require)


@command("results.export", example="results.export results/ --output runs.parquet")
def export(
    paths: Results,
    output: Annotated[
        str, Option("File for the table, instead of standard output.", "FILE", "o", completes="file")
    ] = "",
    format_: Annotated[
        str,
        Option(
            "Format of the table. [default: that of the file's suffix, or csv]",
            choices=("csv", "json", "jsonl", "parquet", "duckdb"),
        ),
    ] = "",
    table: Annotated[
        str,
        Option(
            "runs: a row for each run and metric; points: curves inside results; steps: single steps, and power.",
            choices=("runs", "points", "steps"),
        ),
    ] = "runs",
) -> None:
    """Write a tidy table of results for other programs."""
    from sifmark.commands.results.export import export_results

    export_results(paths, output, format_, table)
