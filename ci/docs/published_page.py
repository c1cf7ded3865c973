"""The page of published tables and figures, with the pictures that `published.show NAME --output` draws."""

from collections.abc import Iterator
from pathlib import Path

from reached import reached_lines

from sifmark.core import paths
from sifmark.core.console import markdown_lines, markdown_text
from sifmark.report.outputs.printed import WIDTH, pictures_of
from sifmark.report.paper import pixels_of
from sifmark.report.published import source_of
from sifmark.studies.load import load_study
from sifmark.studies.published.figures import PublishedStudy, PublishedTable
from sifmark.studies.published.load import load_published, select_tables
from sifmark.studies.study import Study

PAGE = paths.CHECKOUT / "docs" / "results" / "published-figures.md"
PICTURES = paths.CHECKOUT / "docs" / "pictures" / "published"
STUDIES = ("pearc22", "qwant", "turing", "graphcore", "caraml", "deeplearningexamples")
_HEAD = """# Published tables and figures

Look at what the six studies print before you put your results beside them.

Tables are as printed. Ratios are also bars below what they are relative to, or hollow marks along what differs; a \
pale part or an interval is a printed range. Numbers along devices or batch sizes are also curves. Charts whose \
numbers a document does not print are listed, not drawn. These commands draw all pictures, also as PNG and PDF:

```sh
{commands}
```

Made by `ci/generate`.

## What the studies reach

How many published figures have a counterpart among the runs of the study of the same name: its plan, put through the \
matcher of `compare --against published:NAME`. Figures that no field of a result is the same as, or that must not be \
compared, are not counted as comparable. Each of the others has its reason in the study.

{reached}
"""


def published_page() -> str:
    """Return the page, in Markdown."""
    commands = "\n".join(f"sifmark published.show {name} --output pictures/" for name in STUDIES)
    sections = [line for name in STUDIES for line in _section(load_study(name), load_published(name))]
    head = _HEAD.format(commands=commands, reached="\n".join(reached_lines(STUDIES)))
    return "\n".join([head, *sections, "Next: [Metrics](../reference/metrics.md)"]) + "\n"


def published_pictures() -> dict[Path, str]:
    """Return the pictures of the page as SVG, by their paths."""
    drawn: dict[Path, str] = {}
    for name in STUDIES:
        study = load_published(name)
        tables = repeated_tables(load_study(name), study)
        figures = (figure for table in tables for figure in pictures_of(study, table))
        drawn |= {PICTURES / f"{each.name}.svg": each.plot.fixed(pixels_of(WIDTH)) for each in figures}
    return drawn


def repeated_tables(study: Study, published: PublishedStudy) -> list[PublishedTable]:
    """Return the published tables that the outputs of a study repeat, in the order of the document."""
    names = {table.name for output in study.outputs if output.published for table in select_tables(output.published)[1]}
    return [table for table in published.tables if table.name in names]


def _section(study: Study, published: PublishedStudy) -> Iterator[str]:
    tables = repeated_tables(study, published)
    yield f"## {published.name}\n"
    address = f" <{published.url}>" if published.url else ""
    yield f"{markdown_text(published.authors)}: *{markdown_text(published.title)}*, {published.year}.{address}\n"
    for table in tables:
        if table.rows:
            yield f"### {markdown_text(table.title)}\n"
            yield f"{markdown_text(source_of(published, table))}.\n"
            yield "\n".join([*markdown_lines([table.columns, *table.rows]), ""])
            for figure in pictures_of(published, table):
                yield f"![{markdown_text(figure.plot.label)}](../pictures/published/{figure.name}.svg)\n"
    if missing := [table for table in tables if not table.rows]:
        yield "| not drawn | why |\n|---|---|"
        yield from (
            f"| {markdown_text(source_of(published, table))}: {markdown_text(table.title)} | {table.no_numbers} |"
            for table in missing
        )
        yield ""
