"""Which run a result is of: what its image was asked to do, for which system, and under which name it was kept."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

SITE_OPTION, OUTPUT_OPTION = "--site", "--output"  # of images
_KEY = re.compile(r"[0-9a-f]{16}")  # of a run of a study, after which its result is named


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
