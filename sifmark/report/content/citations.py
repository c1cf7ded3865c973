"""What a report cites: the study, published figures, and sifmark itself."""

from dataclasses import dataclass

from sifmark.report.results import ReportResults
from sifmark.studies.study import Study


@dataclass(frozen=True)
class Citation:
    """A work that a report rests on."""

    text: str
    url: str = ""

    @property
    def safe_url(self) -> str:
        """The address if it is one of the web; others are no links."""
        return self.url if self.url.startswith(("https://", "http://")) else ""


def citations_of(results: ReportResults, study: Study | None) -> tuple[Citation, ...]:
    """Return each work once: the source of the study, published figures, and the versions of sifmark that measured."""
    cited = []
    if study and study.source:
        source = study.source
        cited.append(Citation(f"{source.authors}: {source.title}" if source.authors else source.title, source.url))
    cited += [Citation(mark.source, mark.url) for mark in results.published]
    images = (each.document["provenance"]["image"] for each in results.members)
    cited += [Citation(f"sifmark {version}") for version in sorted({image["version"] for image in images if image})]
    return tuple(dict.fromkeys(cited))
