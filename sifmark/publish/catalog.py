"""The catalog of a store: which images it has, as a document, a table and a page."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from sifmark.build.batch import matching_recipes
from sifmark.core.console import status
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.files import human_size
from sifmark.core.schemas import check_document
from sifmark.publish.stores import IDENTITY, SIGNED, PublishedImage, StoreListing
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, CREATED, PLATFORM, REVISION, STAND_IN
from sifmark.recipes.names import EVERYTHING, names_of

COLUMNS = ("recipe", "reference", "version", "platform", "size", "signed", "stand_in", "created", "identity", "digest")
_LONG_COLUMNS = {"reference", "identity", "digest"}  # whose values may be broken anywhere
_VERSION = "org.opencontainers.image.version"
_HIDDEN = (401, 403)  # HTTP: what some registries answer for what they lack, too
_MISSING = 404


def published_images(listing: StoreListing, patterns: Sequence[str]) -> dict[str, PublishedImage]:
    """Return the images of recipes that a store has. Raises SifmarkError if it has none, or fails in another way."""
    images, missing, hidden = {}, [], None
    for recipe in dict.fromkeys(recipe for pattern in patterns for recipe in matching_recipes(pattern)):
        try:
            images[recipe] = listing.resolve(recipe)
        except RegistryError as error:
            if error.status not in (_MISSING, *_HIDDEN):
                raise
            missing.append(recipe)
            hidden = error if error.status in _HIDDEN else hidden
    if hidden and not images:
        raise hidden
    if not images:
        cause = f"{listing.reference(missing[0])}: nothing of {', '.join(missing)} is there"
        raise SifmarkError(cause, "put something there: sifmark registry.push NAME", code="image-not-published")
    if missing:
        status(f"  not there{', or not for this login' if hidden else ''}: {', '.join(missing)}")
    return images


def catalog_document(listing: StoreListing) -> dict[str, Any]:
    """Return the catalog of a store, valid against its schema. Raises SifmarkError if the store has no image."""
    images = published_images(listing, (EVERYTHING,))
    entries = [_entry(listing, recipe, image) for recipe, image in images.items()]
    document = {"schema_version": "1.0", "place": listing.reference("NAME"), "images": entries}
    check_document("catalog-1.0", document, "the catalog")
    return document


def catalog_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a catalog's table, by COLUMNS."""
    return [[_cell_text(entry, column) for column in COLUMNS] for entry in document["images"]]


def catalog_page(document: Mapping[str, Any], pull_command: str) -> str:
    """Return the catalog as an HTML page. It quotes annotations that anyone may have written, so all is escaped."""
    head = "".join(f"<th>{html.escape(column.replace('_', '-'))}</th>" for column in COLUMNS)
    rows = "\n".join(f"<tr>{''.join(_cell(entry, column) for column in COLUMNS)}</tr>" for entry in document["images"])
    return _PAGE.format(place=html.escape(str(document["place"])), fetching=pull_command, head=head, rows=rows)


def _entry(listing: StoreListing, recipe: str, image: PublishedImage) -> dict[str, Any]:
    annotation = image.annotations.get
    return {
        "recipe": recipe,
        "names": list(names_of(recipe)),
        "reference": listing.reference(recipe),
        "digest": image.digest,
        "file": image.blob,
        "size": image.size,
        "identity": annotation(IDENTITY),
        "build_key": annotation(BUILD_KEY),
        "version": annotation(_VERSION),
        "platform": annotation(PLATFORM),
        "created": annotation(CREATED),
        "revision": annotation(REVISION),
        "base_digest": annotation(BASE_DIGEST),
        "signed": annotation(SIGNED) == "true",
        "stand_in": annotation(STAND_IN) == "true",
    }


def _cell_text(entry: Mapping[str, Any], column: str) -> str:
    value = entry[column]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return human_size(value) if column == "size" else "" if value is None else str(value)


def _cell(entry: Mapping[str, Any], column: str) -> str:
    text = html.escape(_cell_text(entry, column))
    return f"<td><code>{text}</code></td>" if column in _LONG_COLUMNS else f"<td>{text}</td>"


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
<p>At <code>{place}</code>. Fetch one: <code>sifmark registry.pull NAME</code>, or <code>{fetching}REFERENCE</code>.</p>
<table>
<tr>{head}</tr>
{rows}
</table>
</body>
</html>
"""
