"""Published studies and their figures as rows, for tables and programs."""

from typing import Any

from sifmark.studies.published.figures import Conditions, Figure, PublishedStudy, PublishedTable, Reference

FIGURE_COLUMNS = (
    "table", "row", "column", "printed", "printed_unit", "low", "high", "bound", "unit", "metric", "state",
    "conditions", "relative_to", "not_comparable",
)  # fmt: skip

Json = dict[str, Any]


def study_record(study: PublishedStudy) -> Json:
    """Return a study in one row."""
    return {
        "name": study.name,
        "title": study.title,
        "authors": study.authors,
        "venue": study.venue,
        "year": study.year,
        "url": study.url,
        "tables": len(study.tables),
        "figures": len(study.figures),
        "comparable": sum(figure.is_comparable for figure in study.figures),
        "context": study.context,
    }


def table_record(table: PublishedTable) -> Json:
    """Return a table with its cells as printed and its figures in our terms."""
    return {
        "name": table.name,
        "title": table.title,
        "place": table.place,
        "page": table.page,
        "columns": list(table.columns),
        "rows": [list(row) for row in table.rows],
        "traps": list(table.traps),
        "no_numbers": table.no_numbers,
        "figures": [figure_record(figure) for figure in table.figures],
    }


def figure_record(figure: Figure) -> Json:
    """Return a figure with all that is known of it."""
    number = figure.number
    return {
        "study": figure.study,
        "table": figure.table,
        "row": figure.row,
        "column": figure.column,
        "printed": figure.printed,
        "printed_unit": figure.printed_unit,
        "printed_low": None if number is None else number.low,
        "printed_high": None if number is None else number.high,
        "metric": figure.metric,
        "low": figure.low,
        "high": figure.high,
        "bound": str(figure.bound),
        "unit": figure.unit,
        "state": figure.state,
        "conditions": _plain(figure.conditions),
        "relative_to": None if figure.reference is None else _reference(figure.reference),
        "best": figure.best,
        "within": figure.within,
        "traps": list(figure.traps),
        "not_comparable": figure.not_comparable,
    }


def figure_row(figure: Figure) -> list[Any]:
    """Return a figure as a row under FIGURE_COLUMNS."""
    relative = "" if figure.reference is None else reference_text(figure.reference)
    texts = {"conditions": conditions_text(figure.conditions), "relative_to": relative}
    return [(figure_record(figure) | texts)[name] for name in FIGURE_COLUMNS]


def conditions_text(conditions: Conditions) -> str:
    """Return conditions in a line: `workload resnet50, precision fp16 or bf16`."""
    return ", ".join(f"{name} {' or '.join(map(str, values))}" for name, values in conditions.items())


def reference_text(reference: Reference) -> str:
    """Return what a ratio is to, in a line."""
    batch = [] if reference.batch_times is None else [f"{reference.batch_times:g} times the batch size"]
    metric = [] if reference.metric is None else [f"metric {reference.metric}"]
    best = [] if reference.best is None else [f"the best in {reference.best}"]
    return ", ".join([*filter(None, [conditions_text(reference.conditions)]), *batch, *metric, *best])


def _reference(reference: Reference) -> Json:
    fields: Json = dict(_plain(reference.conditions))
    if reference.batch_times is not None:
        fields["batch_size_per_replica"] = {"times": reference.batch_times}
    if reference.metric is not None:
        fields["metric"] = reference.metric
    if reference.best is not None:
        fields["best"] = reference.best
    return fields


def _plain(conditions: Conditions) -> Json:
    return {name: values[0] if len(values) == 1 else list(values) for name, values in conditions.items()}
