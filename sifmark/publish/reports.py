"""What pushes, pulls and signatures of images report, whatever the engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SigningKey:
    """The key that signs: a private key in PEM form, or the number of a PGP key in Apptainer's keyring."""

    file: Path | None = None
    keyring_number: str = ""


@dataclass(frozen=True)
class PushReport:
    """An image that is in a store now."""

    reference: str  # with the digest
    digest: str  # of the manifest
    identity: str
    names: tuple[str, ...]  # references of all its names
    summary: str  # for people
    file: str | None = None  # the SIF's digest

    def document(self) -> dict[str, Any]:
        """Return the report as programs read it."""
        file = {} if self.file is None else {"file": self.file}
        return {"digest": self.digest, **file, "identity": self.identity, "names": list(self.names)}


@dataclass(frozen=True)
class PullReport:
    """An image that was fetched and has its names now."""

    address: str
    digest: str  # of the manifest
    identity: str
    signer: str | None  # None if no signature was looked for
    names: tuple[str, ...]
    file: str | None = None  # the SIF's digest

    def document(self) -> dict[str, Any]:
        """Return the report as programs read it."""
        file = {} if self.file is None else {"file": self.file}
        path = {} if self.file is None else {"path": self.address}
        return {"digest": self.digest, **file, "identity": self.identity, "signed_by": self.signer, **path}


@dataclass(frozen=True)
class SignReport:
    """An image that is signed now: a file here, or what a registry has."""

    reference: str
    published: bool
    summary: str  # for people
