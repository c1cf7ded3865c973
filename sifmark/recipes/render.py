"""Recipes as build files, by pure functions: the same input gives the same bytes.

Plain Apptainer or Docker builds these files without sifmark, into the same file tree as our own builds.
"""

import json
from collections.abc import Mapping

from sifmark.core.errors import UsageError
from sifmark.core.shell import comment, word
from sifmark.recipes.labels import BUILD_DATE, TITLE
from sifmark.recipes.recipe import Recipe

SITE = "sifmark-site"  # wheels we add
CODE = "sifmark"  # entrypoints and schemas
APPS = "scif"  # Apptainer's apps: one small script per workload
# Folders of a build's context. Each is copied as a whole, so that Docker keeps the dates of the folders in it.
SITE_LAYER, CODE_LAYER = "site", "code"
_CONTEXT_FOLDERS = {SITE: SITE_LAYER, CODE: CODE_LAYER, APPS: CODE_LAYER}

# Of every image: packages in a user's home are never imported.
FIXED_ENVIRONMENT = {"PYTHONNOUSERSITE": "1"}

# What no image has of its base, in the words of mksquashfs: caches of tools that installed it. No program needs them,
# and of /root and /tmp an Apptainer run sees the host's anyway. Of rocm/pytorch they are 9.9 of 31 GB.
LEFT_OUT = (
    "root/.cache",
    *("tmp/*", "tmp/.*"),  # its * is for no name that begins with a dot
    "var/cache/apt/archives/*.deb",
    *("opt/conda/pkgs/*.conda", "opt/conda/pkgs/*.tar.bz2"),  # the folders beside them may be in use by links
)
LEAVE_OUT = f"-wildcards -e {' '.join(LEFT_OUT)}"
PLAIN_BUILD = f"apptainer build --notest --mksquashfs-args '{LEAVE_OUT}'"

HELP = """\
sifmark image. It runs one workload and prints one JSON result on stdout.

    apptainer run IMAGE.sif [WORKLOAD] [--task training|inference] [--steps N | --duration SECONDS]
    apptainer run IMAGE.sif --list        the workloads in this image
    apptainer run IMAGE.sif --help        every option
    apptainer run --app WORKLOAD IMAGE.sif
    apptainer test IMAGE.sif              a short correctness check

A file called WORKLOAD-RECIPE.sif runs that workload if no other is named. Progress goes to stderr."""


def base_definition(recipe: Recipe, digest: str, date: str = "") -> str:
    """Return the definition of the converted base, without our layers, to be built where `layout_name` is a layout.

    Recipes with the same base and environment share it, so it names none of them. It becomes part of the image, so it
    names no registry or folder either. The labels are its last section, as in the complete definition: Apptainer keeps
    the blank lines between two sections. `date` replaces the time of the conversion.
    """
    labels = {TITLE: "sifmark", **({BUILD_DATE: date} if date else {})}
    return _definition(recipe, layout_name(digest), _labels(labels), agent="oci")


def layout_name(digest: str) -> str:
    """Return what the definition of a converted base calls the layout of the base: a name without a colon."""
    return digest.replace(":", "-")


def definition(recipe: Recipe, address: str, labels: Mapping[str, str], context: str) -> str:
    """Return the complete definition. `context` is the folder with our layers, which must exist before the build."""
    layers = "\n".join(
        f"{_quote_path(f'{context}/{folder}/{name}')} /{name}" for name, folder in _CONTEXT_FOLDERS.items()
    )
    return _definition(recipe, address, _section("files", layers), _labels(labels))


def converted_definition(recipe: Recipe, archive: str, labels: Mapping[str, str]) -> str:
    """Return the definition that converts a Docker image of ours, saved as `archive`, to what `definition` builds."""
    return _definition(recipe, archive, _labels(labels), agent="docker-archive")


def dockerfile(recipe: Recipe, address: str, labels: Mapping[str, str], context: str) -> str:
    """Return the complete Dockerfile; `context` is the folder to build it in."""
    start = [comment(f"docker build -f FILE {word(context)}"), dockerfile_of_stage(address).rstrip("\n")]
    return "\n".join([*start, *_docker_steps(recipe, labels)])


def dockerfile_of_stage(address: str, layer: str = SITE_LAYER) -> str:
    """Return the Dockerfile of a base with our wheels, which are in the folder `layer` of the context."""
    return f"FROM {address}\nCOPY {layer} /\n"


def dockerfile_on_stage(recipe: Recipe, stage: str, labels: Mapping[str, str]) -> str:
    """Return the rest of the Dockerfile, on the image `stage` that `dockerfile_of_stage` built."""
    return "\n".join([f"FROM {stage}", *_docker_steps(recipe, labels)])


def _docker_steps(recipe: Recipe, labels: Mapping[str, str]) -> list[str]:
    environment = " \\\n    ".join(f"{key}={_docker_quote(value)}" for key, value in environment_of(recipe).items())
    pairs = " \\\n    ".join(f"{key}={_docker_quote(value)}" for key, value in sorted(labels.items()))
    return [
        f"COPY {CODE_LAYER} /",
        f"ENV {environment}",
        f"LABEL {pairs}",
        f"ENTRYPOINT {json.dumps([f'/{CODE}/run'])}",
        "CMD []",
        "",
    ]


def run_script() -> str:
    """Return the run script of the image and of each app: the entrypoint finds out how it was called."""
    return f'exec /{CODE}/run "$@"'


def app_script() -> str:
    """Return an app's run script as in its file, but without the last newline, which inspect metadata leave out."""
    return f"#!/bin/sh\n{run_script()}"


def environment_of(recipe: Recipe) -> dict[str, str]:
    """Return all variables that a run of this recipe sets."""
    return {**FIXED_ENVIRONMENT, **recipe.environment}


def _definition(recipe: Recipe, address: str, *sections: str, agent: str = "docker") -> str:
    parts = [
        f"# {PLAIN_BUILD} IMAGE.sif FILE\nBootstrap: {agent}\nFrom: {address}",
        _section("help", HELP),
        _section("environment", _exports(recipe)),
        _section("runscript", run_script()),
        _section("test", f"exec /{CODE}/run --check"),
        *sections,
    ]
    return "\n\n".join(parts) + "\n"


def _exports(recipe: Recipe) -> str:
    return "\n".join(f"export {key}={word(value)}" for key, value in environment_of(recipe).items())


def _labels(labels: Mapping[str, str]) -> str:
    """Return the section of labels. Raises UsageError for a label of several lines, which could begin a section."""
    if broken := [key for key, value in labels.items() if not f"{key}{value}".isprintable()]:
        cause = f"label {broken[0]} is not one line of text: {labels[broken[0]]!a}"
        raise UsageError(cause, "remove the characters that do not show from the recipe", code="document-invalid")
    return _section("labels", "\n".join(f"{key} {value}" for key, value in sorted(labels.items())))


def _section(name: str, body: str) -> str:
    indented = "\n".join(f"    {line}".rstrip() for line in body.split("\n"))
    return f"%{name}\n{indented}"


def _quote_path(path: str) -> str:
    """Return a path as Apptainer reads it in %files. Raises UsageError for one that it cannot read."""
    if not path.isprintable() or '"' in path:
        cause = f"no build file can name the folder {path!r}"
        raise UsageError(cause, "choose another folder for images, with the setting dist", code="invalid-option")
    return f'"{path}"' if any(map(str.isspace, path)) else path


def _docker_quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
