"""Sites for tests: folders of results of several studies and nights, the pages of a site, and the links in them."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unit.report.samples import study
from unit.studies.histories import DRIVER, nights, write_nights

from sifmark.report.site.folder import write_site
from sifmark.report.site.pages import site_pages
from sifmark.report.site.site import SiteOptions, copies, make_site

NIGHTS, LOWERED = 24, 14
ALONE = SiteOptions(processes=1)


def night(site: str, **changes: Any) -> dict[str, Any]:
    """What results of every night have in common."""
    common = {
        "site": site,
        "workload__name": "night",
        "workload__title": "Network of nights",
        "workload__identity": f"sha256:{'ab' * 32}",
        "workload__task": "training",
        "workload__unit": "images",
        "accelerator__name": f"Accelerator of {site}",
        "configuration__batch_size": 64,
        "configuration__concurrency": None,
        "configuration__precision": "bf16",
        "data__source": "synthetic",
    }
    return {**common, **changes}


def results_of_nights(root: Path) -> Path:
    """Write a study, and results of nights of two sites; one is slower from a new driver on. Return the folder."""
    study(root / "quick" / "alpha")
    owner = {"name": "quick", "title": "A new device in fifteen minutes", "digest": "sha256:0"}
    (root / "quick" / ".study.json").write_text(json.dumps(owner))
    values = [value * (0.94 if number >= LOWERED else 1) for number, value in enumerate(nights(1, NIGHTS))]
    drivers = ["550.54"] * LOWERED + ["560.28"] * (NIGHTS - LOWERED)
    write_nights(root / "nights" / "alpha", values, **night("alpha", **{DRIVER: drivers}))
    write_nights(root / "nights" / "beta", nights(5, NIGHTS), **night("beta"))
    return root


def write(folder: Path, target: Path, options: SiteOptions = ALONE) -> dict[str, str]:
    """Write the site of a folder, and return its pages by name."""
    site = make_site(folder, options)
    write_site(target, {**copies(site), **dict(site_pages(site))})
    return pages(target)


def pages(target: Path) -> dict[str, str]:
    """The pages of a site by name."""
    files = (file for file in target.rglob("*.html") if "reports" not in file.relative_to(target).parts)
    return {file.relative_to(target).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}


class Elements(HTMLParser):
    """The elements of a page, its addresses and names, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")
            elif name == "id":
                self.anchors.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def broken_links(target: Path) -> Iterator[str]:
    """Yield the links of a site that lead nowhere, with their pages."""
    root = target.resolve()
    elements = {name: Elements(page) for name, page in pages(target).items()}
    for name, page in elements.items():
        for link in page.links:
            address, _, anchor = unquote(link).partition("#")
            goal = ((root / name).parent / address if address else root / name).resolve()
            linked = elements.get(goal.relative_to(root).as_posix()) if goal.is_relative_to(root) else None
            is_there = goal.is_relative_to(root) and goal.is_file()
            if not is_there or (anchor and (linked is None or anchor not in linked.anchors)):
                yield f"{name}: {link}"
