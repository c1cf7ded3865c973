"""Which run a result is of: what its image was asked to do, for which system, and under which name it was kept."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

from sifmark.core.errors import UsageError

SITE_OPTION, OUTPUT_OPTION = "--site", "--output"  # of images
_KEY = re.compile(r"[0-9a-f]{16}")  # of a run of a study, after which its result is named
_MOST_REPEATS, _MOST_NODES = 1000, 1024  # that are tried for a key; a study has no more repeats


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What identifies a run. A part that is not known is empty."""

    arguments: str  # of the image, without those that say where the result goes, as a shell has them
    site: str
    image: str  # its ID
    key: str  # of a run of a study

    @classmethod
    def of(cls, words: Iterable[str], image: str | None) -> Self:
        """Return the identity of a run with all its arguments, of the image with this ID."""
        asked, values, rest = [], {SITE_OPTION: "", OUTPUT_OPTION: ""}, iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if name in values:
                values[name] = value if equals else next(rest, "")
            else:
                asked.append(word)
        name = values[OUTPUT_OPTION].rpartition("/")[2].removesuffix(".json")
        return cls(shlex.join(asked), values[SITE_OPTION], image or "", name if _KEY.fullmatch(name) else "")

    def difference(self, run: Self) -> str:
        """Return what shows that a result with this identity is not of a run; nothing if it may be."""
        parts = (
            (self.arguments, run.arguments, f"its arguments are {self.arguments}"),
            (self.site, run.site, f"its system is {self.site}"),
            (self.image, run.image, f"its image is {self.image}"),
            (self.key, run.key, f"it was kept as {self.key}"),
        )
        return next((text for own, wanted, text in parts if own and wanted and own != wanted), "")


def identity_of(document: dict[str, Any]) -> RunIdentity:
    """Return the identity of the run that a valid result is of."""
    provenance = document["provenance"]
    image = provenance["image"]
    return RunIdentity.of(provenance["command"], image and image["file"]["identity"])


def key_of(image: str, system: str, nodes: int, repeat: int, arguments: Sequence[str]) -> str:
    """Return the key of a run of a study. `image` is an ID, or what the study calls one that was not there."""
    content = [image, system, nodes, repeat, *arguments]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def nodes_of(document: dict[str, Any]) -> int:
    """Return on how many hosts the ranks of a valid result were; 1 for a result without ranks."""
    return len({rank["host"] for rank in document.get("ranks") or ()}) or 1


def require_key(text: str) -> None:
    """Raise UsageError for a text that is no key of a run."""
    if not _KEY.fullmatch(text):
        remedy = "a key is 16 hexadecimal digits: the name of a result in the folder of a study"
        raise UsageError(f"--run {text!r:.40}: that is no key of a run", remedy, code="invalid-option")


def unlike_key(document: dict[str, Any], key: str, image: str) -> str:
    """Return what shows that a valid result is not of the run of a study with this key; nothing if it is.

    A key is made of image, system, nodes, repeat and arguments: a result has all of these but the number of the repeat,
    which is tried, as are the nodes that its devices can be on. `image` is what the study calls it.
    """
    own, given = identity_of(document), document["configuration"]
    if own.key != key:
        return f"it was kept as {own.key}" if own.key else "its command does not say that it was kept under this key"
    recorded = document["provenance"]["image"] or {}
    images = filter(None, (own.image, image, recorded.get("recipe")))
    # A remainder of the devices may have been left out.
    most = min(_MOST_NODES, int((given["replicas"] + 1) * given["stages"] * given.get("tensor", 1)))
    every = product(images, {nodes_of(document), *range(1, most + 1)}, range(1, _MOST_REPEATS + 1))
    words = shlex.split(own.arguments)
    if any(key_of(name, own.site, nodes, repeat, words) == key for name, nodes, repeat in every):
        return ""
    return "its image, system and arguments have other keys"
