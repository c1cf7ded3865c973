"""What a report cites, as text and as BibTeX: the study, published figures, and the versions of sifmark."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sifmark.core.console import markdown_text
from sifmark.report.files.latex import latex_text
from sifmark.report.report import Report
from sifmark.studies.published.figures import PublishedStudy
from sifmark.studies.published.load import load_published, published_names

PROGRAM = "sifmark: container images that benchmark AI accelerators the same way everywhere"
_ADDRESS = re.compile(r"https?://[A-Za-z0-9./:?&=+~@,;()_-]+")


@dataclass(frozen=True)
class Work:
    """A work that is cited."""

    key: str
    title: str
    authors: str = ""
    venue: str = ""
    year: int | None = None
    version: str = ""
    url: str = ""


def citations_text(report: Report) -> str:
    """Return the citations as Markdown, each in a line, then what of it published figures are from."""
    works = [f"- {markdown_text(_in_words(work))}" for work in works_of(report)]
    places = sorted({mark.source for mark in report.results.published})
    shown = ["", "Published figures beside results:", "", *(f"- {markdown_text(place)}" for place in places)]
    return "\n".join(["# Citations", "", *works, *(shown if places else [])]) + "\n"


def bibliography(report: Report) -> str:
    """Return the citations as BibTeX."""
    return "\n".join(map(_entry, works_of(report)))


def works_of(report: Report) -> list[Work]:
    """Return the works, each once."""
    return list(dict.fromkeys(_works(report)))


def _works(report: Report) -> Iterator[Work]:
    source = report.study.source if report.study else None
    published = {name: load_published(name) for name in published_names()}
    urls = {mark.url for mark in report.results.published}
    if source and source.published in published:
        first = published.pop(source.published)
        yield replace(_work(first), title=source.title, authors=source.authors or first.authors, url=source.url)
    elif source:
        yield Work("study", source.title, source.authors, url=source.url)
    yield from (_work(each) for each in published.values() if each.url in urls)
    for number, version in enumerate(report.provenance.versions):
        yield Work(f"sifmark{number or ''}", PROGRAM, version=version)


def _work(study: PublishedStudy) -> Work:
    return Work(study.name, study.title, study.authors, study.venue, study.year, url=study.url)


def _in_words(work: Work) -> str:
    parts = (work.authors, work.title, work.venue, str(work.year or ""), work.version and f"version {work.version}")
    return ". ".join([*filter(None, parts), *([work.url] if work.url else [])])


def _entry(work: Work) -> str:
    """Return an entry that every style of BibTeX has."""
    names = re.split(r",\s*|\s+and\s+", work.authors.replace(" et al.", ", others"))
    fields = {
        "title": f"{{{latex_text(work.title)}}}",
        "author": " and ".join(f"{{{latex_text(name)}}}" if name != "others" else name for name in names if name),
        "howpublished": latex_text(work.venue),
        "year": str(work.year or ""),
        "note": latex_text(f"Version {work.version}") if work.version else "",
        "url": work.url if _ADDRESS.fullmatch(work.url) else "",
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{work.key},", *lines, "}"]) + "\n"
