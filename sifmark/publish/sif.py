"""The push, pull, mirror and catalog verbs: images to and from registries, SIF files to and from folders too."""

import html
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sifmark.build import ledger
from sifmark.build.batch import matching_recipes
from sifmark.build.image import lock_path, update_record, write_image_record
from sifmark.core.console import Step, output, output_table, status, step
from sifmark.core.environment import platform_name
from sifmark.core.errors import REBUILD_REMEDY, RegistryError, SifmarkError
from sifmark.core.files import atomic_path, free_space, human_size, write_json, write_text
from sifmark.core.locks import exclusive_lock
from sifmark.core.schemas import check_document
from sifmark.core.settings import settings
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.engine import Apptainer, describe_image
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.apptainer.signature import signer
from sifmark.engines.docker.engine import NAME as DOCKER
from sifmark.publish import docker
from sifmark.publish.policy import require_allowed
from sifmark.publish.stores import (
    IDENTITY,
    SIGNED,
    ImageStore,
    PublishedImage,
    StoreListing,
    open_store,
    public_labels,
    publish,
)
from sifmark.recipes.names import EVERYTHING, find_images, find_recipe, image_file, names_of
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, CREATED, PLATFORM, RECIPE, REVISION, STAND_IN
from sifmark.trust.checks import check_provenance
from sifmark.trust.image import ImageUnderTest, image_under_test

_VERSION = "org.opencontainers.image.version"


def push(name: str, registry: str, tag: str, as_json: bool) -> None:
    """Put a recipe's image on a shelf, under each of its names. Raises SifmarkError."""
    if settings().engine == DOCKER:
        docker.push(name, registry, tag, as_json)
    else:
        _push_sif(name, registry, tag, as_json)


def _push_sif(name: str, registry: str, tag: str, as_json: bool) -> None:
    recipe, there = find_recipe(name), open_store(registry, tag)
    path, names = image_file(recipe), (recipe, *names_of(recipe))
    with exclusive_lock(lock_path(recipe, Apptainer())):
        subject = image_under_test(Apptainer(), str(path), signed=False)
        if subject.recipe != recipe:
            raise SifmarkError(f"{path.name} is an image of recipe {subject.recipe}", REBUILD_REMEDY)
        inspection = subject.inspection
        require_allowed(there.host, path.name, inspection.labels)
        with step(f"hash {path.name}"):
            made = describe_image(path, inspection)
        check_provenance(subject)
        told = {**public_labels(inspection.labels), IDENTITY: made.identity, SIGNED: str(inspection.signed()).lower()}
        image = publish(path, made.digest, made.size, told)
        with step(f"push {path.name}, {human_size(made.size)}, to {there.reference(recipe)}"):
            sent = there.push(names, image, path)
        update_record(recipe, Apptainer(), pushed=f"{there.reference(recipe)}@{image.digest}")
    if as_json:
        references = [there.reference(each) for each in names]
        answer = {"digest": image.digest, "file": made.digest, "identity": made.identity, "names": references}
        output(json.dumps(answer, indent=2))
    else:
        output(f"{there.reference(recipe)}@{image.digest}")
        status(f"  {'sent' if sent else 'it was there already'}; also as {', '.join(names[1:])}")


def pull(name: str, registry: str, tag: str, as_json: bool, to_be_signed: bool) -> None:
    """Fetch the image of a name, hold it against its digests, labels and signature, and give it its names.

    Nothing has its final name before. Raises SifmarkError.
    """
    to_be_signed = to_be_signed or settings().require_signature or bool(settings().keys)
    if settings().engine == DOCKER:
        docker.pull(name, registry, tag, as_json, to_be_signed)
    else:
        _pull_sif(name, registry, tag, as_json, to_be_signed)


def _pull_sif(name: str, registry: str, tag: str, as_json: bool, to_be_signed: bool) -> None:
    recipe, there = find_recipe(name), open_store(registry, tag)
    asked = find_images(name)[0].name if name != recipe else recipe
    image = there.resolve(asked)
    target, tool = image_file(recipe), Apptainer()
    target.parent.mkdir(parents=True, exist_ok=True)
    _require_space(there.reference(asked), image.size, target.parent)
    with exclusive_lock(lock_path(recipe, tool)):
        with atomic_path(target) as draft:
            _fetch(there, asked, image, draft)
            draft.chmod(0o755)
            inspection = tool.inspect(str(draft))
            made = describe_image(draft, inspection)
            _require_announced(ImageUnderTest(tool, str(draft), inspection), recipe, image.annotations)
            by = signer(draft, settings().keys) if to_be_signed else None
            pulled = f"{there.reference(asked)}@{image.digest}"
            write_image_record(recipe, tool, made, inspection.labels, pulled=pulled, signed_by=by)
            if by:
                ledger.record_trusted(made.digest, by)
        names = tool.tag_workloads(recipe)
    if as_json:
        facts = {"digest": image.digest, "file": made.digest, "identity": made.identity}
        output(json.dumps({**facts, "signed_by": by, "path": str(target)}, indent=2))
    else:
        output(f"{target}: {made.identity}, {docker.signature_told(by)}; also called {', '.join(names)}")


def mirror(target: str, patterns: Sequence[str], registry: str, tag: str) -> None:
    """Copy the images of recipes from one shelf to another, with all their names. Raises SifmarkError.

    What a shelf does not have is said and left; the file of each is held against its digest on the way.
    """
    origin, there = open_store(registry, tag), open_store(target, tag)
    found = _published(origin, patterns)
    for recipe, image in found.items():
        require_allowed(there.host, recipe, image.annotations)
    with TemporaryDirectory(prefix="sifmark-") as folder:
        for recipe, image in found.items():
            _require_space(origin.reference(recipe), image.size, Path(folder))
            file = Path(folder) / f"{recipe}.sif"
            _fetch(origin, recipe, image, file)
            require_allowed(there.host, recipe, read_sif(file).labels())  # what it says itself, whatever was announced
            sent = there.push((recipe, *names_of(recipe)), image, file)
            file.unlink()
            output(f"{there.reference(recipe)}@{image.digest}{'' if sent else ' was there already'}")


def catalog(registry: str, tag: str, output_folder: str, as_json: bool) -> None:
    """Print what a shelf has, or write it to a folder as catalog.json and a page. Raises SifmarkError."""
    of_docker = settings().engine == DOCKER
    there: StoreListing = docker.images(registry, tag) if of_docker else open_store(registry, tag)
    entries = [_entry(there, recipe, image) for recipe, image in _published(there, (EVERYTHING,)).items()]
    document = {"schema_version": "1.0", "place": there.reference("NAME"), "images": entries}
    check_document("catalog-1.0", document, "the catalog")
    if output_folder:
        write_json(Path(output_folder) / "catalog.json", document)
        fetching = "docker pull " if of_docker else "apptainer pull oras://"
        write_text(Path(output_folder) / "index.html", _page(document, fetching))
        output(str(Path(output_folder) / "catalog.json"))
    elif as_json:
        output(json.dumps(document, indent=2))
    else:
        rows = [[_told(entry, column) for column in _COLUMNS] for entry in entries]
        output_table(*_COLUMNS, rows=rows)


_COLUMNS = ("recipe", "reference", "version", "platform", "size", "signed", "stand_in", "created", "identity", "digest")
_LONG = {"reference", "identity", "digest"}  # what may be broken anywhere


def _entry(there: StoreListing, recipe: str, image: PublishedImage) -> dict[str, Any]:
    told = image.annotations.get
    return {
        "recipe": recipe,
        "names": list(names_of(recipe)),
        "reference": there.reference(recipe),
        "digest": image.digest,
        "file": image.blob,
        "size": image.size,
        "identity": told(IDENTITY),
        "build_key": told(BUILD_KEY),
        "version": told(_VERSION),
        "platform": told(PLATFORM),
        "created": told(CREATED),
        "revision": told(REVISION),
        "base_digest": told(BASE_DIGEST),
        "signed": told(SIGNED) == "true",
        "stand_in": told(STAND_IN) == "true",
    }


def _told(entry: Mapping[str, Any], column: str) -> str:
    """What an entry has in a column, in words."""
    value = entry[column]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return human_size(value) if column == "size" else "" if value is None else str(value)


def _page(document: Mapping[str, Any], fetching: str) -> str:
    """The catalog for people. All of it comes from annotations that anyone may have written, so all is escaped."""
    head = "".join(f"<th>{html.escape(column.replace('_', '-'))}</th>" for column in _COLUMNS)
    rows = "\n".join(f"<tr>{''.join(_cell(entry, column) for column in _COLUMNS)}</tr>" for entry in document["images"])
    return _PAGE.format(place=html.escape(str(document["place"])), fetching=fetching, head=head, rows=rows)


def _cell(entry: Mapping[str, Any], column: str) -> str:
    told = html.escape(_told(entry, column))
    return f"<td><code>{told}</code></td>" if column in _LONG else f"<td>{told}</td>"


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>sifmark images</title>
<style>
body {{ font-family: sans-serif }}
table {{ border-collapse: collapse }}
td, th {{ padding: 0.3em 0.6em; text-align: left; vertical-align: top; white-space: nowrap }}
tr {{ border-bottom: 1px solid #ccc }}
td code {{ white-space: normal; overflow-wrap: anywhere }}
</style>
</head>
<body>
<h1>sifmark images</h1>
<p>At <code>{place}</code>. Fetch one: <code>inv pull NAME</code>, or <code>{fetching}REFERENCE</code>.</p>
<table>
<tr>{head}</tr>
{rows}
</table>
</body>
</html>
"""


def _published(there: StoreListing, patterns: Sequence[str]) -> dict[str, PublishedImage]:
    """The images of recipes that a shelf has. Raises SifmarkError where it has none, or fails in another way."""
    found, missing, hidden = {}, [], None
    for recipe in dict.fromkeys(recipe for pattern in patterns for recipe in matching_recipes(pattern)):
        try:
            found[recipe] = there.resolve(recipe)
        except RegistryError as error:
            if error.status not in (401, 403, 404):
                raise
            missing.append(recipe)
            if error.status != 404:  # what some registries answer for what they do not have, too
                hidden = error
    if hidden and not found:
        raise hidden
    if not found:
        raise SifmarkError(
            f"{there.reference(missing[0])}: nothing of {', '.join(missing)} is there",
            "put something there: inv push NAME",
        )
    if missing:
        status(f"  not there{', or not for this login' if hidden else ''}: {', '.join(missing)}")
    return found


def _fetch(there: ImageStore, name: str, image: PublishedImage, target: Path) -> None:
    with step(f"pull {there.reference(name)}, {human_size(image.size)}") as progress:
        there.pull(name, image, target, partial(_tell, progress, image.size))


def _tell(progress: Step, size: int, arrived: int) -> None:
    progress.detail(f"{human_size(arrived)} of {human_size(size)}")


def _require_space(what: str, size: int, folder: Path) -> None:
    if size > (free := free_space(folder)):
        raise SifmarkError(
            f"{what} takes {human_size(size)}, {folder} has {human_size(free)} left",
            "free space (inv clean), or name another folder: dist in sifmark.toml, or TMPDIR",
        )


def _require_announced(image: ImageUnderTest, recipe: str, annotations: Mapping[str, str]) -> None:
    """Raise SifmarkError where what came is not the image that was asked for and announced, or not what it says."""
    labels, identity = image.labels, image.inspection.identity()
    remedy = "do not run it; ask whoever pushed it"
    for label, wanted in ((RECIPE, recipe), (PLATFORM, platform_name()), (BUILD_KEY, annotations.get(BUILD_KEY))):
        if labels.get(label) != wanted:
            raise SifmarkError(f"what came has {label} {labels.get(label)}, not {wanted}", remedy)
    if identity != annotations.get(IDENTITY):
        raise SifmarkError(f"what came is {identity}, announced was {annotations.get(IDENTITY)}", remedy)
    try:
        check_provenance(image)
    except CheckFailed as reason:
        raise SifmarkError(f"what came is not what it says: {reason.cause}", remedy) from reason
