"""Result files on the host: checked against the schema they name, and summarised."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError
from sifmark.results.load import load_results


def validate_results(path: str, quiet: bool = False) -> None:
    """Say of each file whether it is valid. Raises SifmarkError when one is not, UsageError when there is none."""
    files = bad = 0
    for file, judged in groupby(load_results(path), key=lambda one: one.file):
        problems = [problem for one in judged for problem in one.problems]
        files += 1
        bad += bool(problems)
        if problems or not quiet:
            output(f"{'invalid' if problems else 'valid'}  {printable(file)}")
        for problem in problems:
            output(f"  {printable(problem)}")
    if bad:
        raise SifmarkError(f"{bad} of {files} files are not valid", "the lines above name each field")
    status(f"{files} valid")


def show_results(path: str) -> None:
    """Print a summary of each valid result. Raises SifmarkError when there was one that is not."""
    bad = []
    for judged in load_results(path):
        if judged.problems:
            bad.append(f"{printable(judged.file)}: {printable(judged.problems[0])}")
        else:
            output("\n".join(printable(line) for line in summary(judged.document)))
    if bad:
        raise SifmarkError("\n".join(bad), f"see all that is wrong: inv validate {path}")


def summary(document: dict[str, Any]) -> list[str]:
    """A result in a few lines for people."""
    workload, configuration, status = document["workload"], document["configuration"], document["status"]
    accelerator, image = document["accelerator"], document["provenance"]["image"]
    proof = document["numerics"]
    streams = f", {configuration['concurrency']} streams" if configuration["concurrency"] else ""
    asked = f"{workload['task']}, {configuration['precision']}, batch {configuration['batch_size']}{streams}"
    lines = [
        f"{workload['title']}, {asked}",
        f"  status      {status['state']}" + (f": {status['message']}" if status.get("message") else ""),
        f"  on          {accelerator.get('name', accelerator['kind'])}, host {document['host']['hostname']['value']}",
        f"  image       {image['recipe'] + ', build ' + image['build_key'][7:19] if image else 'none: run outside'}",
        f"  numerics    {proof['state'].replace('_', ' ')}" + (f": {proof['reason']}" if "reason" in proof else ""),
    ]
    if document["provenance"]["stand_in"]:
        lines.append("  base        a stand-in, not the vendor's: do not compare with results from real bases")
    if document["steadiness"]["steady"] is False:
        drift = document["steadiness"]["drift"]["value"]
        change = "" if drift is None else f" by {drift:+.1%}"
        lines.append(f"  not steady  step times changed{change} over the timed window: warm up or run for longer")
    return [*lines, *_metrics(document["metrics"])]


def _metrics(metrics: dict[str, Any]) -> Iterator[str]:
    """Those that are known line by line, then the others, one line for each reason."""
    unknown: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        if metric["value"] is None:
            unknown.setdefault(metric["reason"], []).append(name)
        else:
            yield f"  {name:<26} {metric['value']:,.4g} {metric['unit']}"
    for reason, names in unknown.items():
        yield f"  - {', '.join(names)}: {reason}"
