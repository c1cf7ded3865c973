"""How pip and uv are run: for the Python and platform of a base, and against the indexes of the site.

uv resolves and unpacks, pip chooses the files and fetches them. Neither can do both: CONTRIBUTING.md has the reasons.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from sifmark.core.console import Step
from sifmark.core.errors import SifmarkError, require_extra
from sifmark.core.process import CommandError, run
from sifmark.core.settings import Settings
from sifmark.recipes.recipe import Recipe, Target

# Packages of the extra `build`, by module: what resolves, fetches and unpacks wheels, and what writes SBOMs.
EXTRA = "build"
PACKAGES = {
    "cyclonedx": "cyclonedx-python-lib",
    "packageurl": "packageurl-python",
    "pip": "pip",
    "spdx_tools": "spdx-tools",
    "uv": "uv",
}
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
UV = (sys.executable, "-m", "uv", "--no-config", "--no-python-downloads", "pip")
DOWNLOAD_REMEDY = "a hash that differs is not the locked file: do not use it; else check network, index and disk space"

# The newest C library that every supported host has, and the older tags that wheels carry. PEP 600.
_MANYLINUX = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_24",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux1",
)
# Options of pip's configuration, and uv's variables for the same. In the words of a command, the password of an address
# would be logged.
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
# Sections of pip's configuration that count for us; a later one overrides an earlier one.
_PIP_SECTIONS = ("global", "install", "download", ":env:")
# What pip and uv print when an index lacks something.
_NOT_IN_INDEX = ("No matching distribution found", "Could not find a version", "No solution found")


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs them: `a build`."""
    require_extra(EXTRA, purpose, PACKAGES)


def pip_target_options(target: Target) -> list[str]:
    """Return the options that make pip choose wheels for a Python and platform, not for those that run it."""
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python]
    options += ["--abi", f"cp{target.python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    for tag in _MANYLINUX:
        options += ["--platform", f"{tag}_{target.platform}"]
    return options


def uv_target_options(target: Target) -> list[str]:
    """Return the options that make uv choose wheels for a Python and platform, not for those that run it."""
    return ["--python-version", target.python, "--python-platform", f"{target.platform}-{_MANYLINUX[0]}"]


def pip_variables(settings: Settings) -> dict[str, str]:
    """Return the variables that name the site's indexes to pip; as options, their passwords would be logged."""
    indexes = settings.wheel_indexes
    if not indexes:
        return {}
    # With an empty variable, the extra indexes of pip's configuration would stay in force.
    return {"PIP_INDEX_URL": indexes[0], "PIP_EXTRA_INDEX_URL": " ".join(indexes[1:] or indexes)}


def pip_configuration(settings: Settings) -> dict[str, str]:
    """Return pip's configuration on this host by option, from files and variables, without empty values."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _PIP_SECTIONS}
    for line in run([*PIP, "config", "list"], environment=pip_variables(settings)).output.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in by_section and ast.literal_eval(value):
            by_section[section][option] = ast.literal_eval(value)
    return {option: value for section in _PIP_SECTIONS for option, value in by_section[section].items()}


def uv_variables(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make uv use what pip is configured for: uv does not read pip's configuration."""
    variables = {}
    for option, name in _UV_VARIABLES.items():
        if option in configuration:
            separator = "," if option == "find-links" else " "
            variables[name] = separator.join(configuration[option].split())
    return variables


def run_with_indexes(
    command: list[str],
    recipe: Recipe,
    settings: Settings,
    progress: Step,
    *,
    environment: Mapping[str, str],
    log: Path | None = None,
) -> None:
    """Run pip or uv against the site's indexes, or without any against those that pip is configured for.

    If these lack something, and the site names none, the framework vendor's index is added. Raises SifmarkError.
    """

    def attempt(options: list[str], remedy: str = "") -> None:
        run(
            [*command, *options],
            log=log,
            watch=progress.detail,
            time_limit=settings.time_limit,
            remedy=remedy,
            environment=environment,
        )

    try:
        attempt([])
    except CommandError as error:
        is_missing = any(words in error.cause for words in _NOT_IN_INDEX)
        if settings.wheel_indexes or recipe.index is None or not is_missing:
            raise SifmarkError(error.cause, DOWNLOAD_REMEDY, code=error.code) from error
        progress.detail(f"not all wheels are in the configured indexes; asking {recipe.index}")
        attempt(["--extra-index-url", recipe.index], DOWNLOAD_REMEDY)


def download_wheels(
    requirements: Iterable[str],
    recipe: Recipe,
    options: list[str],
    folder: Path,
    settings: Settings,
    progress: Step,
    log: Path | None,
) -> None:
    """Download wheels, as lines of a lock, into a folder. `options` choose among files. Raises SifmarkError."""
    listed = folder / "requirements.txt"
    listed.write_text("".join(f"{requirement}\n" for requirement in requirements))
    command = [*PIP, "download", "--require-hashes", "--no-deps", "--progress-bar", "off", "--dest", str(folder)]
    command += [*options, "-r", str(listed)]
    run_with_indexes(command, recipe, settings, progress, environment=pip_variables(settings), log=log)
