"""Digests of images that this user has built, or whose trusted signature this user has verified.

A build record lies beside its image and may have come along with it. The ledger is in the cache, where nobody else
writes.
"""

from contextlib import suppress
from pathlib import Path

from sifmark.core.files import sha256_file, write_text
from sifmark.core.keys import key_id
from sifmark.core.permissions import require_unshared
from sifmark.core.settings import Settings
from sifmark.oci.manifest import DIGEST

_BUILT = "built here"


def record_trusted(digest: str, settings: Settings, signer: str | None = None) -> None:
    """Write down that an image was built here, or that a signature by the trusted key `signer` was valid."""
    reason = _BUILT if signer is None else _key_hashes(settings).get(signer, "")
    write_text(_entry(digest, settings), "\n".join(sorted({*_reasons(digest, settings), reason} - {""})))


def copy_trust(digest: str, former: str, settings: Settings) -> None:
    """Trust a signed image as much as the one that it was made from."""
    with suppress(OSError):
        write_text(_entry(digest, settings), _entry(former, settings).read_text())


def is_trusted(digest: str, settings: Settings) -> bool:
    """Return whether an image was built here, or had a valid signature by a key that is still trusted.

    Raises SifmarkError if others may change what the ledger says.
    """
    if DIGEST.fullmatch(digest) is None:
        return False
    require_unshared(_entry(digest, settings), "the ledger of trusted images")
    return not _reasons(digest, settings).isdisjoint({_BUILT, *_key_hashes(settings).values()})


def _reasons(digest: str, settings: Settings) -> set[str]:
    """Return why a digest was trusted: it was built here, or the hashes of the keys that had signed it."""
    with suppress(OSError):
        return set(_entry(digest, settings).read_text().splitlines())
    return set()


def _key_hashes(settings: Settings) -> dict[str, str]:
    """Return the trusted keys by their names in results: hashes of files, and fingerprints."""
    files = {key: Path(key).expanduser() for key in settings.keys}
    return {
        key_id(file) if file.is_file() else key.lower(): sha256_file(file) if file.is_file() else key.lower()
        for key, file in files.items()
    }


def _entry(digest: str, settings: Settings) -> Path:
    return settings.cache / "proofs" / digest.removeprefix("sha256:")
