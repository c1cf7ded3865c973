"""What a report cites: the study, published figures, and sifmark itself."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sifmark.report.results import ReportResults
from sifmark.studies.published.figures import PublishedStudy
from sifmark.studies.published.load import load_published, published_names
from sifmark.studies.study import Study

PROGRAM = "sifmark: container images that benchmark AI accelerators the same way everywhere"


@dataclass(frozen=True)
class Work:
    """A work that a report rests on."""

    key: str  # in BibTeX
    title: str
    authors: str = ""
    venue: str = ""
    year: int | None = None
    version: str = ""
    url: str = ""

    @property
    def text(self) -> str:
        """The work in a sentence, without its address."""
        version = self.version and f"version {self.version}"
        return ". ".join(filter(None, (self.authors, self.title, self.venue, str(self.year or ""), version)))

    @property
    def safe_url(self) -> str:
        """The address if it is one of the web; others are no links."""
        return self.url if self.url.startswith(("https://", "http://")) else ""


def works_of(results: ReportResults, study: Study | None) -> tuple[Work, ...]:
    """Return each work once: the source of the study, published figures, and the versions of sifmark that measured."""
    return tuple(dict.fromkeys(_works(results, study)))


def _works(results: ReportResults, study: Study | None) -> Iterator[Work]:
    source = study.source if study else None
    urls = {mark.url for mark in results.published}
    published = {name: load_published(name) for name in published_names()} if urls or source else {}
    if source and source.published in published:
        first = published.pop(source.published)
        yield replace(_work(first), title=source.title, authors=source.authors or first.authors, url=source.url)
    elif source:
        yield Work("study", source.title, source.authors, url=source.url)
    yield from (_work(each) for each in published.values() if each.url in urls)
    images = (each.document["provenance"]["image"] for each in results.members)
    for number, version in enumerate(sorted({image["version"] for image in images if image})):
        yield Work(f"sifmark{number or ''}", PROGRAM, version=version)


def _work(study: PublishedStudy) -> Work:
    return Work(study.name, study.title, study.authors, study.venue, study.year, url=study.url)
