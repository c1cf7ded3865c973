"""What this user's own verbs have seen of images, by digest: that they built one, or that a trusted signature held.

A record lies beside its image and may have come along with it; these lie in the cache, where nobody else writes.
"""

from contextlib import suppress
from pathlib import Path

from sifmark.core.files import sha256_file, write_text
from sifmark.core.keys import key_id
from sifmark.core.settings import settings
from sifmark.oci.reference import DIGEST

_BUILT = "built here"


def record_trusted(digest: str, signer: str | None = None) -> None:
    """Write down that an image was built here, or that a signature by the trusted key of that name held."""
    write_text(_place(digest), _BUILT if signer is None else _keys().get(signer, ""))


def copy_trust(digest: str, former: str) -> None:
    """What is known of an image holds for what signing made of it."""
    with suppress(OSError):
        write_text(_place(digest), _place(former).read_text())


def is_trusted(digest: str) -> bool:
    """Whether an image was built here, or a signature held by a key that is trusted still."""
    if DIGEST.fullmatch(digest) is None:
        return False
    with suppress(OSError):
        return _place(digest).read_text() in {_BUILT, *_keys().values()}
    return False


def _keys() -> dict[str, str]:
    """The trusted keys by the names that signatures are told by: hashes of files, and fingerprints."""
    files = {key: Path(key).expanduser() for key in settings().keys}
    return {
        key_id(file) if file.is_file() else key.lower(): sha256_file(file) if file.is_file() else key.lower()
        for key, file in files.items()
    }


def _place(digest: str) -> Path:
    return settings().cache / "proofs" / digest.removeprefix("sha256:")
