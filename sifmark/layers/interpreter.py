"""Whether the Python that a recipe names is in its base, of the recipe's version, and can be started by every user."""

import posixpath
import re
from collections.abc import Mapping

from sifmark.core.errors import UnbuildableError
from sifmark.recipes.plan import Plan

_MOST_LINKS = 40  # as in Linux, path_resolution(7)
_HOME = "/root"  # for root, Apptainer binds the host's home folder there; others may not enter it
_FOR_OTHERS = ("x", "t")  # the last letter of the mode of a program that others may start, or a folder they may enter
_VERSION = re.compile(r"python(3\.\d+)")
_PYTHON = re.compile(r".*/bin/python3(\.\d+)?")

# The files of a base by absolute path: mode as `ls -l` shows it, and the target of a link, or "".
Files = Mapping[str, tuple[str, str]]


def require_interpreter(plan: Plan, files: Files) -> None:
    """Raise UnbuildableError unless every user can start the interpreter that a plan's recipe names."""
    path = plan.recipe.base.interpreter
    if path and (fault := _fault(path, plan.base.python, files)):
        pythons = ", ".join(sorted(name for name in files if _PYTHON.fullmatch(name)))
        raise UnbuildableError(
            f"recipe {plan.recipe.name}: base.interpreter {path}: {fault}",
            f"set another one in recipes/{plan.recipe.name}.toml; the base has {pythons or 'no python3'}",
            code="interpreter-unusable",
        )


def _fault(path: str, python: str, files: Files) -> str | None:
    *folders, program = steps = _resolved(path, files)
    mode, target = files.get(program, ("", ""))
    if not mode or target:
        return f"the base has no {'working ' if target else ''}{program}"
    if _HOME in folders:
        return f"{program} is in a home folder"
    if closed := next((step for step in steps if files[step][0][9] not in _FOR_OTHERS), None):
        return f"other users may not use {closed}"
    version = _VERSION.fullmatch(posixpath.basename(program))
    if version and version[1] != python:
        return f"{program} is Python {version[1]}, and the recipe is for {python}"
    return None


def _resolved(path: str, files: Files) -> list[str]:
    """Return the folders on the way to a file and the file, links followed; up to the first that is missing."""
    steps: list[str] = []
    left, place, links = path.strip("/").split("/"), "/", 0
    while left and (not steps or steps[-1] in files):
        step = posixpath.normpath(posixpath.join(place, left.pop(0)))
        _, target = files.get(step, ("", ""))
        if target and links < _MOST_LINKS:
            links, left = links + 1, [*target.strip("/").split("/"), *left]
            place = "/" if target.startswith("/") else place
        else:
            steps += [step] if step != "/" else []
            place = step
    return steps
