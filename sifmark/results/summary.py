"""A result in a few lines for people."""

from collections.abc import Iterator
from typing import Any


def summary(document: dict[str, Any]) -> list[str]:
    """Return the lines that summarise a valid result."""
    provenance = document["provenance"]
    lines = [_title(document), *_facts(document)]
    if provenance["stand_in"]:
        lines.append("  base        a stand-in, not the vendor's: do not compare with results from real bases")
    if document["steadiness"]["steady"] is False:
        drift = document["steadiness"]["drift"]["value"]
        change = "" if drift is None else f" by {drift:+.1%}"
        lines.append(f"  not steady  step times changed{change} over the timed window: warm up or run for longer")
    return [*lines, *_metrics(document["metrics"])]


def _title(document: dict[str, Any]) -> str:
    workload, configuration = document["workload"], document["configuration"]
    streams = f", {configuration['concurrency']} streams" if configuration["concurrency"] else ""
    batch = f"batch {configuration['batch_size']}{streams}"
    return f"{workload['title']}, {workload['task']}, {configuration['precision']}, {batch}"


def _facts(document: dict[str, Any]) -> list[str]:
    status, numerics, accelerator = document["status"], document["numerics"], document["accelerator"]
    image = document["provenance"]["image"]
    return [
        f"  status      {status['state']}" + (f": {status['message']}" if status.get("message") else ""),
        f"  on          {accelerator.get('name', accelerator['kind'])}, host {document['host']['hostname']['value']}",
        f"  image       {image['recipe'] + ', build ' + image['build_key'][7:19] if image else 'none: run outside'}",
        f"  numerics    {numerics['state'].replace('_', ' ')}" + _reason(numerics),
    ]


def _reason(numerics: dict[str, Any]) -> str:
    return f": {numerics['reason']}" if "reason" in numerics else ""


def _metrics(metrics: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each metric with a value, then a line for each reason why others have none."""
    names_by_reason: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        if metric["value"] is None:
            names_by_reason.setdefault(metric["reason"], []).append(name)
        else:
            yield f"  {name:<26} {metric['value']:,.4g} {metric['unit']}"
    for reason, names in names_by_reason.items():
        yield f"  - {', '.join(names)}: {reason}"
