"""The catalog of a store: which images it has, as a document and a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from sifmark.builds.batch import matching_recipes
from sifmark.core.console import status
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.files import human_size
from sifmark.core.schemas import check_document
from sifmark.publish.stores import IDENTITY, SIGNED, PublishedImage, StoreListing
from sifmark.recipes.labels import (
    BASE_DIGEST,
    BASE_LICENCE,
    BASE_NAME,
    BUILD_KEY,
    CREATED,
    DESCRIPTION,
    DEVICE,
    FRAMEWORK,
    FRAMEWORK_VERSION,
    PLATFORM,
    REVISION,
    STAND_IN,
    VERSION,
)
from sifmark.recipes.names import EVERYTHING, names_of

# Of a table, by the names of the document's fields.
COLUMNS = {
    "recipe": "recipe",
    "title": "for",
    "version": "version",
    "platform": "platform",
    "size": "size",
    "signed": "signed",
    "stand_in": "test base",
    "identity": "image ID",
    "reference": "reference",
}
_ID = 19  # characters of a short image ID: sha256: and twelve digits
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
    document = {"schema_version": "1.1", "place": listing.reference("NAME"), "images": entries}
    check_document("catalog-1.1", document, "the catalog")
    return document


def catalog_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a catalog's table, by COLUMNS."""
    return [[_cell_text(entry, column) for column in COLUMNS] for entry in document["images"]]


def _entry(listing: StoreListing, recipe: str, image: PublishedImage) -> dict[str, Any]:
    annotation = image.annotations.get
    return {
        "recipe": recipe,
        "title": annotation(DESCRIPTION),
        "device": annotation(DEVICE),
        "framework": annotation(FRAMEWORK),
        "framework_version": annotation(FRAMEWORK_VERSION),
        "names": list(names_of(recipe)),
        "reference": listing.reference(recipe),
        "digest": image.digest,
        "file": image.blob,
        "size": image.size,
        "identity": annotation(IDENTITY),
        "build_key": annotation(BUILD_KEY),
        "version": annotation(VERSION),
        "platform": annotation(PLATFORM),
        "created": annotation(CREATED),
        "revision": annotation(REVISION),
        "base": annotation(BASE_NAME),
        "base_digest": annotation(BASE_DIGEST),
        "base_licence": annotation(BASE_LICENCE),
        "signed": annotation(SIGNED) == "true",
        "stand_in": annotation(STAND_IN) == "true",
    }


def _cell_text(entry: Mapping[str, Any], column: str) -> str:
    value = entry[column]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "size":
        return human_size(value)
    text = "" if value is None else str(value)
    return text[:_ID] if column == "identity" else text
