"""Module files of pulled images: `module load sifmark/cuda` makes `resnet50-cuda` and its other names commands.

A module is `sifmark/RECIPE/VERSION`: with the suffix .lua for Lmod, without one for Environment Modules. Its commands
start the image by this installation of sifmark, which knows at that time what the host needs.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from sifmark.core.files import write_text
from sifmark.publish.reports import PullReport
from sifmark.recipes.labels import DESCRIPTION, RECIPE, VERSION

FAMILY = "sifmark"  # the folder of its modules
_ARGUMENTS = ' "$@"'  # of a function of a shell


def write_modulefiles(report: PullReport, labels: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the module files of a pulled SIF with these labels below a folder of modules, and return them.

    They replace earlier ones.
    """
    file = Path(report.address).absolute()
    recipe, version = labels[RECIPE], labels[VERSION]
    about = {
        "image": str(file),
        "recipe": recipe,
        "version": version,
        "identity": report.identity,
        "digest": report.digest,
        "signed by": report.signer or "not checked",
    }
    commands = {name: _start(file.with_name(f"{name}{file.suffix}")) for name in report.names}
    title = labels.get(DESCRIPTION) or f"sifmark, recipe {recipe}"
    place = folder / FAMILY / recipe
    written = {place / f"{version}.lua": _lua, place / version: _tcl}
    for path, text in written.items():
        write_text(path, text(title, about, {_variable(recipe): str(file)}, commands))
    return list(written)


def _start(file: Path) -> str:
    """Return the words of a shell that start an image, without its arguments."""
    return shlex.join([sys.executable, "-P", "-m", "sifmark", "run", str(file), "--"])


def _variable(recipe: str) -> str:
    return f"SIFMARK_{recipe.upper()}_SIF"


def _help(title: str, about: dict[str, str], commands: dict[str, str]) -> str:
    facts = [f"{name}: {value}" for name, value in about.items()]
    return "\n".join([title, "", *facts, "", f"Commands: {', '.join(commands)}", "Their options: NAME --help"])


def _lua(title: str, about: dict[str, str], variables: dict[str, str], commands: dict[str, str]) -> str:
    """Return a module file of Lmod."""
    lines = ["-- Written by sifmark registry.pull.", f"help({_lua_text(_help(title, about, commands))})"]
    lines += [f"whatis({_lua_text(f'{name}: {value}')})" for name, value in _whatis(title, about).items()]
    lines += [f"setenv({_lua_text(name)}, {_lua_text(value)})" for name, value in variables.items()]
    for name, start in commands.items():
        bash, csh = start + _ARGUMENTS, f"{start} $*"
        lines.append(f"set_shell_function({_lua_text(name)}, {_lua_text(bash)}, {_lua_text(csh)})")
    return "\n".join([*lines, ""])


def _tcl(title: str, about: dict[str, str], variables: dict[str, str], commands: dict[str, str]) -> str:
    """Return a module file of Environment Modules. Shells without functions, and releases before 5.1, get aliases."""
    lines = ["#%Module1.0", "# Written by sifmark registry.pull.", "proc ModulesHelp { } {"]
    lines += [f"    puts stderr {_tcl_text(_help(title, about, commands))}", "}"]
    lines += [f"module-whatis {_tcl_text(f'{name}: {value}')}" for name, value in _whatis(title, about).items()]
    lines += [f"conflict {FAMILY}/{about['recipe']}"]
    lines += [f"setenv {name} {_tcl_text(value)}" for name, value in variables.items()]
    lines += ['set functions [expr {[info commands set-function] ne "" && [module-info shelltype] ne "csh"}]']
    lines += ["if {$functions} {"]
    lines += [f"    set-function {name} {_tcl_text(start + _ARGUMENTS)}" for name, start in commands.items()]
    lines += ["} else {"]
    lines += [f"    set-alias {name} {_tcl_text(start)}" for name, start in commands.items()]
    return "\n".join([*lines, "}", ""])


def _whatis(title: str, about: dict[str, str]) -> dict[str, str]:
    return {"Description": title, "Version": about["version"], "Identity": about["identity"]}


def _lua_text(text: str) -> str:
    """Return a text as a string of Lua: bytes that are no plain characters are spelled by their numbers."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def _tcl_text(text: str) -> str:
    """Return a text as a word of Tcl in which nothing is replaced."""
    plain = (c if c.isascii() and c.isprintable() and c not in '"\\$[]{};' else _tcl_escape(c) for c in text)
    return f'"{"".join(plain)}"'


def _tcl_escape(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else "?"
