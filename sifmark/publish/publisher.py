"""How images are published, which depends on their engine: `sif` and `docker` have the same functions."""

from typing import Protocol

from sifmark.core.settings import Settings
from sifmark.engines import DOCKER, Engine
from sifmark.publish.reports import PullReport, PushReport, SigningKey, SignReport
from sifmark.publish.stores import StoreListing


class Publisher(Protocol):
    """Publishes the images of one engine. `registry` and `tag` are empty to use the settings and the version."""

    PULL_COMMAND: str  # how people fetch a reference without sifmark
    SIGNS_IN_REGISTRY: bool  # whether signatures are beside a published image, not in a file here

    def push(self, name: str, registry: str, tag: str, engine: Engine, settings: Settings) -> PushReport:
        """Push a recipe's image to a store, under each of its names. Raises SifmarkError."""

    def pull(self, name: str, registry: str, tag: str, engine: Engine, settings: Settings, signed: bool) -> PullReport:
        """Fetch an image, and give it its names when digests, labels and signature are verified.

        With `signed` a trusted signature is required. Raises SifmarkError.
        """

    def sign(
        self, name: str, key: SigningKey, registry: str, tag: str, engine: Engine, settings: Settings
    ) -> SignReport:
        """Sign a recipe's image and its attestations. Raises SifmarkError."""

    def listing(self, registry: str, tag: str, settings: Settings) -> StoreListing:
        """Return the listing of a store. Raises UsageError if there is no such store for images of the engine."""


def publisher_of(engine: Engine) -> Publisher:
    """Return the publisher of an engine's images."""
    from sifmark.publish import docker, sif

    publishers: dict[bool, Publisher] = {True: docker, False: sif}
    return publishers[engine.name == DOCKER]
