"""The report in Markdown: the same numbers as its page in the same order, with pictures of the charts."""

from collections.abc import Iterable, Iterator

from sifmark.core.console import markdown_lines, markdown_text
from sifmark.report.describe import state_text
from sifmark.report.forms import Figure
from sifmark.report.outputs.measured import Chart
from sifmark.report.report import Report
from sifmark.report.scorecard import scorecard_table
from sifmark.report.strips import Strip
from sifmark.report.tables import Table, texts_of
from sifmark.report.trust import Notice


def report_text(report: Report) -> str:
    return "\n\n".join(part for part in _parts(report) if part) + "\n"


def methods_text(report: Report) -> str:
    return "\n\n".join(["# Methods", *map(markdown_text, report.methods)]) + "\n"


def citations_text(report: Report) -> str:
    """Return the citations, a line each, then which tables of them published figures are from."""
    places = sorted({mark.source for mark in report.results.published})
    shown = ["", "Published figures beside results:", "", _list(places)] if places else []
    return "\n".join(["# Citations", "", _citations(report), *shown]) + "\n"


def markdown_table(table: Table) -> str:
    return "\n".join(markdown_lines(texts_of(table))) + "\n"


def _parts(report: Report) -> Iterator[str]:
    yield f"# {markdown_text(report.words.headline)}"
    yield markdown_text(report.title) if report.title != report.words.headline else ""
    yield " ".join(map(markdown_text, report.words.sentences))
    yield _facts(report)
    yield from _notices(report.notices)
    yield " ".join(filter(None, (markdown_text(report.trust.missing), report.trust.remedy)))
    if report.study and report.study.questions:
        yield "## Questions of the study"
        yield _list(report.study.questions)
    if report.scorecard:
        yield "## Scorecard"
        yield _table(scorecard_table(report.scorecard))
    yield "## Numbers" if report.numbers else ""
    yield from map(_table, report.numbers)
    yield from map(_picture, report.figures)
    yield from map(_declared, report.charts)
    for strip in report.strips:
        yield from _strip(strip)
    yield "## Systems"
    yield markdown_table(report.systems).rstrip()
    yield from _left_out(report)
    yield "## Methods"
    yield from map(markdown_text, report.methods)
    yield "## Citations"
    yield _citations(report)
    yield "## All results"
    yield _list(
        f"{each.system}, {each.workload}, {', '.join(filter(None, (each.configuration, each.repeat)))}: "
        f"{state_text(each.state)}; {each.file}"
        + (f"; not for publication: {', '.join(mark.name for mark in each.marks)}" if each.marks else "")
        for each in report.runs
    )


def _citations(report: Report) -> str:
    return _list(f"{each.text}. {each.url}" if each.url else each.text for each in report.citations)


def _facts(report: Report) -> str:
    results, (recipes, versions) = report.results, report.results.images
    lines = [f"Study: {report.study.name}"] if report.study else []
    lines += [f"Measured: {' to '.join(dict.fromkeys(results.days))}"]
    lines += [f"Results: {len(results.members)} (measurements: {results.measured})"]
    lines += [f"Systems: {', '.join(results.systems)}"]
    lines += [f"Images: {', '.join(recipes)}, sifmark {', '.join(versions)}"] if recipes else []
    return _list(lines)


def _notices(notices: Iterable[Notice]) -> Iterator[str]:
    lines = [
        f"- {each.mark.name} ({each.mark.symbol}): {each.count}. {each.mark.why} {each.mark.remedy}" for each in notices
    ]
    if lines:
        yield "## Do not publish these numbers"
        yield "\n".join(lines)


def _strip(strip: Strip) -> Iterator[str]:
    yield f"## {markdown_text(strip.workload.section.title)}: {markdown_text(strip.workload.task)}"
    yield markdown_text(f"{strip.message}.") if not strip.is_of_device else ""
    yield _list(f"Not compared: {reason}" for reason in strip.refused)
    yield _list(f"Allowed although not comparable: {reason}" for reason in strip.overridden)
    yield _list(f"{name} not compared: {reason}" for name, reason in strip.apart)
    yield from map(_picture, strip.figures)
    if strip.table:
        yield _table(strip.table)
    if strip.normal:
        yield "### Bounds and published figures"
        yield _list(
            f"{', '.join(filter(None, (each.system, each.configuration, label)))}: {text}"
            for each in strip.normal
            for label, text in each.lines
        )
    if strip.failures:
        yield "### Runs that are no measurement"
        yield _list(f"{each.system}, {how}" for each, how in strip.failures)


def _left_out(report: Report) -> Iterator[str]:
    if report.left_out or report.refused or report.results.unmatched:
        yield "## Left out"
        yield _list(f"{each.file}: {each.reason}" for each in report.left_out)
        yield _list(f"Not compared: {each.reason}; for example {each.file}" for each in report.refused)
        yield _list(f"Published, without a counterpart: {text}" for text in report.results.unmatched)


def _table(table: Table) -> str:
    head = " ".join(filter(None, (f"{table.title}.", table.caption, table.legend)))
    return "\n\n".join(filter(None, (markdown_text(head), markdown_table(table).rstrip(), _list(table.notes))))


def _picture(figure: Figure) -> str:
    return f"{_image(figure.title, figure.name)}\n\n{markdown_text(figure.plot.label)}"


def _declared(chart: Chart) -> str:
    if chart.is_table:
        return _table(chart.table)
    images = "\n\n".join(_image(figure.title, figure.name) for figure in chart.figures)
    return f"{images}\n\n{markdown_text(chart.table.caption)}"


def _image(title: str, name: str) -> str:
    # Within an image's text, brackets and parentheses would end it.
    words = markdown_text(title).replace("]", "\\]").replace("(", "\\(")
    return f"![{words}](plots/{name}.svg)"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)
