"""The build files: quoting proved by the tools that read them, and texts held against the reviewed ones."""

import shlex
import subprocess
from dataclasses import replace

import pytest
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.recipes.golden import REFRESH, differences
from sifmark.recipes.recipe import load_recipe, recipe_names
from sifmark.recipes.render import base_definition, definition, dockerfile

NASTY = {"A": "two words", "B": 'quote " quote', "C": "it's", "D": "$HOME and `id`", "E": "back\\slash", "F": ""}


@pytest.mark.parametrize("recipe", recipe_names())
def test_texts_are_as_reviewed(recipe: str) -> None:
    assert not differences(recipe), REFRESH


def test_same_input_same_bytes() -> None:
    recipe = load_recipe("cpu")
    labels = {"b": "2", "a": "1"}
    once = definition(recipe, "host/x@sha256:0", labels, "/c")
    assert once == definition(recipe, "host/x@sha256:0", dict(reversed(labels.items())), "/c")


def test_a_shell_reads_the_environment_back_literally() -> None:
    recipe = replace(load_recipe("cpu"), environment=NASTY)
    text = base_definition(recipe, "host/x@sha256:0")
    exports = text.split("%environment\n")[1].split("\n%runscript")[0]
    script = exports + "".join(f'\nprintf "%s\\0" "${key}"' for key in NASTY)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.split("\0")[:-1] == list(NASTY.values())


def test_docker_quoting_escapes_what_docker_expands() -> None:
    recipe = replace(load_recipe("cpu"), environment=NASTY)
    text = dockerfile(recipe, "host/x@sha256:0", {"label": 'a "b" $c'}, "/c")
    assert 'D="\\$HOME and `id`"' in text
    assert 'B="quote \\" quote"' in text
    assert 'LABEL label="a \\"b\\" \\$c"' in text


@pytest.mark.parametrize("value", ["a\n%post\n  rm -rf /", "a\rb", "\x1b[0m", "a\u2028%post", "a\x85%post"])
def test_a_label_of_several_lines_is_no_section_of_its_own(value: str) -> None:
    with refused(UsageError, "document-invalid", "label x "):
        definition(load_recipe("cpu"), "host/x@sha256:0", {"x": value}, "/c")


@pytest.mark.parametrize("folder", ["/a\n%post\n  id", "/a\nRUN id", '/a"b', "/a\r"])
def test_the_name_of_a_folder_is_no_instruction(folder: str) -> None:
    recipe = load_recipe("cpu")
    with refused(UsageError, "invalid-option"):
        definition(recipe, "host/x@sha256:0", {}, folder)
    lines = dockerfile(recipe, "host/x@sha256:0", {}, folder).split("\n")
    assert lines[1:] == dockerfile(recipe, "host/x@sha256:0", {}, "/c").split("\n")[1:]


def test_the_run_script_passes_arguments_word_for_word() -> None:
    text = base_definition(load_recipe("cpu"), "host/x@sha256:0")
    line = text.split("%runscript\n")[1].splitlines()[0]
    assert shlex.split(line) == ["exec", "/sifmark/run", "$@"]
    assert '"$@"' in line


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_only_a_newline_ends_a_line_of_a_section(end: str) -> None:
    """As Apptainer and a shell read it; the schema lets no recipe have such a value, so this is a second wall."""
    value = f"a{end}%post{end}id"
    text = definition(replace(load_recipe("cpu"), environment={"X": value}), "host/x@sha256:0", {}, "/c")
    assert f"X='{value}'" in text
