"""The interpreter that a recipe names, in the files of a base."""

from dataclasses import replace

import pytest
from unit.wheel_files import SITE

from sifmark.core.errors import UnbuildableError
from sifmark.core.settings import with_options
from sifmark.layers.interpreter import Files, require_interpreter
from sifmark.recipes.plan import Plan, make_plan


def files(*programs: str, **links: str) -> Files:
    """A base with these programs and the folders that they are in, all open to everybody, and links."""
    above = {"/" + "/".join(path.split("/")[1:end]) for path in programs for end in range(2, path.count("/") + 1)}
    return {
        **dict.fromkeys(above, ("drwxr-xr-x", "")),
        **dict.fromkeys(programs, ("-rwxr-xr-x", "")),
        **{path: ("lrwxrwxrwx", target) for path, target in links.items()},
    }


UBUNTU = files("/usr/bin/python3.12", **{"/usr/bin/python3": "python3.12"})
VENV = {**files("/opt/venv/bin/x", **{"/opt/venv/bin/python3": "/usr/bin/python3"}), **UBUNTU}
OF_ROOT = files("/root/.local/python3.12", "/opt/x", **{"/opt/python3": "../root/.local/python3.12"})
MERGED = files("/usr/bin/python3.12", **{"/bin": "usr/bin"})
OLDER = files("/usr/bin/python3.10", **{"/usr/bin/python3": "python3.10"})
CIRCLE = files("/usr/bin/x", **{"/usr/bin/python3": "python", "/usr/bin/python": "python3"})


def plan_of(path: str | None) -> Plan:
    plan = make_plan("cuda", with_options(SITE, bases="pinned"))
    recipe = replace(plan.recipe, base=replace(plan.recipe.base, interpreter=path))
    return replace(plan, recipe=recipe, base=replace(plan.base, python="3.12"))


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/usr/bin/python3", UBUNTU),
        ("/opt/venv/bin/python3", VENV),
        ("/bin/python3.12", MERGED),
        (None, {}),
    ],
)
def test_an_interpreter_for_everybody(path: str | None, base: Files) -> None:
    require_interpreter(plan_of(path), base)


@pytest.mark.parametrize(
    ("path", "base", "said"),
    [
        ("/opt/venv/bin/python3", UBUNTU, "the base has no /opt"),
        ("/usr/bin/python3", CIRCLE, "the base has no working /usr/bin/python3"),
        ("/opt/python3", OF_ROOT, "/root/.local/python3.12 is in a home folder"),
        ("/usr/bin/python3", {**UBUNTU, "/usr/bin": ("drwxr-x---", "")}, "other users may not use /usr/bin"),
        ("/usr/bin/python3", {**UBUNTU, "/usr/bin/python3.12": ("-rwx------", "")}, "not use /usr/bin/python3.12"),
        ("/usr/bin/python3", OLDER, "/usr/bin/python3.10 is Python 3.10, and the recipe is for 3.12"),
    ],
)
def test_an_interpreter_that_some_cannot_start(path: str, base: Files, said: str) -> None:
    with pytest.raises(UnbuildableError) as raised:
        require_interpreter(plan_of(path), base)
    assert said in raised.value.cause and raised.value.code == "interpreter-unusable"
    assert "recipes/cuda.toml" in raised.value.remedy


def test_the_remedy_names_what_the_base_has() -> None:
    with pytest.raises(UnbuildableError) as raised:
        require_interpreter(plan_of("/opt/conda/bin/python3"), VENV)
    assert raised.value.remedy.endswith("/opt/venv/bin/python3, /usr/bin/python3, /usr/bin/python3.12")
