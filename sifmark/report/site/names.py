"""File names of pages: safe on every file system and in every address, whatever the thing is called."""

import re
import unicodedata
from collections.abc import Mapping
from hashlib import sha256

_LONGEST = 40
_UNSAFE = re.compile(r"[^a-z0-9_]+")
_DIGITS, _ALL_DIGITS = 10, 64  # of a digest in a name
_WITH_DIGEST = re.compile(r"(.*-)?[0-9a-f]{10,}")


def file_names(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return a name of small letters, digits, `-` and `_` for each text, made of its label; no two are equal.

    A text that is no such name gets a digest, so that `ResNet` and `resnet` differ on file systems without case.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text, label in sorted(labels.items()):
        name = _name(text, label, _DIGITS)
        if name in taken:
            name = _name(text, label, _ALL_DIGITS)
        names[text] = name
        taken.add(name)
    return names


def _name(text: str, label: str, digits: int) -> str:
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    slug = _UNSAFE.sub("-", plain).strip("-_")[:_LONGEST].strip("-_")
    if slug and slug == text and digits < _ALL_DIGITS and not _WITH_DIGEST.fullmatch(text):
        return slug
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{slug}-{digest}" if slug else digest
