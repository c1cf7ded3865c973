"""Recipes as build files: pure functions, same input, same bytes.

What they print builds with plain Apptainer or Docker, without sifmark, and gives the tree that the fast way gives.
"""

import json
import shlex
from collections.abc import Mapping

from sifmark.recipes.recipe import Recipe

SITE = "sifmark-site"  # wheels we add
CODE = "sifmark"  # entrypoints and schemas
APPS = "scif"  # Apptainer's apps: one small script per workload
# Folders of a build's context, each copied as a whole: so the folders within keep their dates with Docker too.
SITE_LAYER, CODE_LAYER = "site", "code"
_PLACES = {SITE: SITE_LAYER, CODE: CODE_LAYER, APPS: CODE_LAYER}

TITLE = "org.opencontainers.image.title"
BUILD_DATE = "org.label-schema.build-date"  # Apptainer's own, which a definition may state with `build --force`

# Holds in every image: packages in a user's home never mix with the image's.
FIXED_ENVIRONMENT = {"PYTHONNOUSERSITE": "1"}

HELP = """\
sifmark image. It runs one workload and prints one JSON result on stdout.

    apptainer run IMAGE.sif [WORKLOAD] [--task training|inference] [--steps N | --duration SECONDS]
    apptainer run IMAGE.sif --list        the workloads in this image
    apptainer run IMAGE.sif --help        every option
    apptainer run --app WORKLOAD IMAGE.sif
    apptainer test IMAGE.sif              a self-test of seconds

A file called WORKLOAD-RECIPE.sif runs that workload when none is named. Progress goes to stderr."""


def base_definition(recipe: Recipe, address: str, agent: str = "docker", date: str = "") -> str:
    """The definition of the converted base: `address` is registry/repository@digest. No layer of ours is in it.

    Recipes on one base with one environment share it, so it names none of them. Labels stand at its end, as in the
    whole definition: Apptainer keeps the blank lines between a section and the next. `date` is told in place of the
    moment of the conversion.
    """
    return _definition(
        recipe, address, _labels({TITLE: "sifmark", **({BUILD_DATE: date} if date else {})}), agent=agent
    )


def definition(recipe: Recipe, address: str, labels: Mapping[str, str], context: str) -> str:
    """The whole definition. `context` is the folder that holds our layers, assembled beforehand."""
    layers = "\n".join(f"{_quote_path(f'{context}/{place}/{name}')} /{name}" for name, place in _PLACES.items())
    return _definition(recipe, address, _section("files", layers), _labels(labels))


def converted_definition(recipe: Recipe, archive: str, labels: Mapping[str, str]) -> str:
    """The definition that turns a Docker image of ours, saved as `archive`, into what `definition` gives."""
    return _definition(recipe, archive, _labels(labels), agent="docker-archive")


def dockerfile(recipe: Recipe, address: str, labels: Mapping[str, str], context: str) -> str:
    """The Dockerfile; `context` is the folder to build it in."""
    start = [f"# docker build -f FILE {shlex.quote(context)}", dockerfile_of_stage(address).rstrip("\n")]
    return "\n".join([*start, *_docker_steps(recipe, labels)])


def dockerfile_of_stage(address: str, layer: str = SITE_LAYER) -> str:
    """The Dockerfile of a base with our wheels, which lie in a folder of the context."""
    return f"FROM {address}\nCOPY {layer} /\n"


def dockerfile_on_stage(recipe: Recipe, stage: str, labels: Mapping[str, str]) -> str:
    """The rest of the Dockerfile, on such a base."""
    return "\n".join([f"FROM {stage}", *_docker_steps(recipe, labels)])


def _docker_steps(recipe: Recipe, labels: Mapping[str, str]) -> list[str]:
    environment = " \\\n    ".join(f"{key}={_docker_quote(value)}" for key, value in environment_of(recipe).items())
    stated = " \\\n    ".join(f"{key}={_docker_quote(value)}" for key, value in sorted(labels.items()))
    return [
        f"COPY {CODE_LAYER} /",
        f"ENV {environment}",
        f"LABEL {stated}",
        f"ENTRYPOINT {json.dumps([f'/{CODE}/run'])}",
        "CMD []",
        "",
    ]


def run_script() -> str:
    """The run script of the image and of each of its apps: the entrypoint sees by itself how it was called."""
    return f'exec /{CODE}/run "$@"'


def app_script() -> str:
    """An app's run script as a file holds it, but for its last line's end, which inspect metadata leave out."""
    return f"#!/bin/sh\n{run_script()}"


def environment_of(recipe: Recipe) -> dict[str, str]:
    """Every variable that a run of this recipe sets."""
    return {**FIXED_ENVIRONMENT, **recipe.environment}


def _definition(recipe: Recipe, address: str, *more: str, agent: str = "docker") -> str:
    parts = [
        f"Bootstrap: {agent}\nFrom: {address}",
        _section("help", HELP),
        _section("environment", _exports(recipe)),
        _section("runscript", run_script()),
        _section("test", f"exec /{CODE}/run --check"),
        *more,
    ]
    return "\n\n".join(parts) + "\n"


def _exports(recipe: Recipe) -> str:
    return "\n".join(f"export {key}={shlex.quote(value)}" for key, value in environment_of(recipe).items())


def _labels(labels: Mapping[str, str]) -> str:
    """Raises ValueError for a label that would not stay on its line: it could be a section of its own."""
    if broken := [key for key, value in labels.items() if not f"{key}{value}".isprintable()]:
        raise ValueError(f"label {broken[0]} is not one line of text")
    return _section("labels", "\n".join(f"{key} {value}" for key, value in sorted(labels.items())))


def _section(name: str, body: str) -> str:
    indented = "\n".join(f"    {line}".rstrip() for line in body.splitlines())
    return f"%{name}\n{indented}"


def _quote_path(path: str) -> str:
    return f'"{path}"' if any(map(str.isspace, path)) else path  # as Apptainer reads %files


def _docker_quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
