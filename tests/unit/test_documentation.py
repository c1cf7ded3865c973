"""The documentation: links lead somewhere, every page is reached, and what pages show is valid."""

import tomllib
from pathlib import Path

import click
import documentation
import pytest
from documentation import PAGES, README, ROOT, WRITTEN, Block, name

from sifmark.commands import command_line  # noqa: F401 - which declares all commands
from sifmark.commands.framework import COMMANDS
from sifmark.core.settings import load_settings
from sifmark.studies.acceptance.contract import Contract
from sifmark.studies.acceptance.template import TEMPLATE
from sifmark.studies.load import load_study

# Of fenced blocks: tests execute `sh` and `console`, and read `toml`; commands in `text` need what tests lack.
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


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_blocks_are_in_languages_that_tests_know(page: Path) -> None:
    assert {block.language for block in documentation.blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_and_studies_in_pages_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for block in documentation.blocks(page):
        if block.language == "toml":
            text = "\n".join(block.lines)
            assert tomllib.loads(text)
            if "[[clause]]" in block.lines:
                assert text == TEMPLATE.rstrip("\n")
                (tmp_path / "contract.toml").write_text(text)
                assert Contract.read(tmp_path / "contract.toml").rows == 3 * 16 + 1
                continue
            is_study = "[[run]]" in block.lines
            file = tmp_path / ("study.toml" if is_study else "sifmark.toml")
            file.write_text(text)
            assert load_study(str(file)).groups if is_study else load_settings()


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_command_of_a_page_has_options_and_choices_that_exist(page: Path) -> None:
    """Also commands that need a cluster, a registry or an accelerator, which no test executes."""
    for name_of_command, *words in documentation.own_commands(page):
        if not name_of_command[0].isalpha() or name_of_command.isupper():
            continue  # an option of all commands, an assignment, or a word that stands for any command
        assert name_of_command in COMMANDS, f"sifmark {name_of_command}"
        command = COMMANDS[name_of_command]
        context = click.Context(command)
        try:
            values, _, given = command.make_parser(context).parse_args(list(words))
        except click.BadOptionUsage as error:  # an option is named without what follows it
            assert error.option_name == words[-1], f"sifmark {name_of_command} {words}"
            continue
        for option in given:
            if isinstance(option.type, click.Choice) and not option.multiple:
                option.type.convert(values[option.name], option, context)


def test_an_output_is_compared_with_what_a_page_shows() -> None:
    block = Block("console", ("$ a", "x  1.5 [1, 2]", "...", "end in ... s", "$ b", "y"))
    (first, second) = documentation.sessions(block)
    assert (first[0], second) == ("a", ("b", ["y"]))
    pattern = documentation.pattern(first[1])
    assert pattern.search("before\nx 20,000.1   [-3, 4e-05]\nany\nlines\nend in 3.2 s\n")
    assert pattern.search("x 1 [1, 2]\nend in no s\n") and pattern.search("x 1 ± 2.5 %\nend in 3.2 s\n")
    assert not pattern.search("x 1 [1, 2\nend in 3 s\n")
    assert not pattern.search("x 1 [1, 2]\nend\n") and not pattern.search("z 1 [1, 2]\nend in 3 s\n")
