"""The documentation: links lead somewhere, pages have their form, and texts keep their budgets."""

import tomllib
from pathlib import Path

import documentation
import pytest
from documentation import PAGES, README, ROOT, WRITTEN, Block, name

from sifmark.core.settings import load_settings
from sifmark.studies.load import load_study

MOST_LINES_OF_README = 150
MOST_WORDS_OF_A_PARAGRAPH = 90
MOST_WORDS_OF_A_SENTENCE = 35
LANGUAGES = {"sh", "console", "text", "toml", "yaml", "json", "python"}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in documentation.links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name(page)}: {link}"
        assert not anchor or anchor in documentation.anchors(path), f"{name(page)}: {link}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, pending = set(), [README]
    while pending:
        page = pending.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            targets = (link.partition("#")[0] for link in documentation.links(page) if "://" not in link)
            pending += [(page.parent / target).resolve() for target in targets if target]
    assert set(PAGES) <= reached


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES_OF_README


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_texts_keep_their_budgets(page: Path) -> None:
    for paragraph in documentation.prose(page):
        assert len(paragraph.split()) <= MOST_WORDS_OF_A_PARAGRAPH, paragraph
        for sentence in documentation.sentences(paragraph):
            assert len(sentence.split()) <= MOST_WORDS_OF_A_SENTENCE, sentence


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_a_page_has_a_title_a_goal_and_known_blocks(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0].startswith("# ") and lines[1] == "" and lines[2] and not lines[2].startswith(("#", "|", "`"))
    assert {block.language for block in documentation.blocks(page)} <= LANGUAGES
    if page != README:
        assert lines[-1].startswith("Next: ["), "a page ends with the next one"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_and_studies_in_pages_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for block in documentation.blocks(page):
        if block.language == "toml":
            text = "\n".join(block.lines)
            assert tomllib.loads(text)
            is_study = "[[run]]" in block.lines
            file = tmp_path / ("study.toml" if is_study else "sifmark.toml")
            file.write_text(text)
            assert load_study(str(file)).groups if is_study else load_settings()


def test_an_output_is_compared_with_what_a_page_shows() -> None:
    block = Block("console", ("$ a", "x  1.5 [1, 2]", "...", "end in ... s", "$ b", "y"))
    (first, second) = documentation.sessions(block)
    assert (first[0], second) == ("a", ("b", ["y"]))
    pattern = documentation.pattern(first[1])
    assert pattern.search("before\nx 20,000.1   [-3, 4e-05]\nany\nlines\nend in 3.2 s\n")
    assert pattern.search("x 1 [1, 2]\nend in no s\n")
    assert not pattern.search("x 1 [1, 2]\nend\n") and not pattern.search("z 1 [1, 2]\nend in 3 s\n")
