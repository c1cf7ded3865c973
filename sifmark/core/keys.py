"""The keys that a site trusts: files of public keys, and fingerprints of PGP keys."""

import re
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import sha256_file
from sifmark.core.permissions import require_unshared

FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
_WITH_HASH = re.compile(r"(?P<name>.*) \((?P<hash>[0-9a-f]{12})\)")


def key_files(keys: Sequence[str]) -> list[Path]:
    """Return those of a site's keys that are files. Raises UsageError for a file that does not exist."""
    files = {key: Path(key).expanduser() for key in keys if not FINGERPRINT.fullmatch(key)}
    for key, file in files.items():
        if not file.is_file():
            raise UsageError(f"there is no key {key}", "correct --key, or `keys` in sifmark.toml", code="key-unusable")
        require_unshared(file, "a trusted key")
    return list(files.values())


def key_id(key: Path) -> str:
    """Return a key's name in results: its file name, and the start of its hash, since sites name files differently."""
    return f"{key.name} ({sha256_file(key).removeprefix('sha256:')[:12]})"


def key_names(keys: Sequence[str]) -> list[str]:
    """Return a site's keys as people compare them: fingerprints, then files. Raises UsageError for a missing file."""
    return [*(key for key in keys if FINGERPRINT.fullmatch(key)), *map(key_id, key_files(keys))]


def same_key(name: str, other: str) -> bool:
    """Return whether two names mean one key: by their hashes, or by the file names if a name has no hash."""
    first, second = _WITH_HASH.fullmatch(name), _WITH_HASH.fullmatch(other)
    if first and second:
        return first["hash"] == second["hash"]
    return (first["name"] if first else name) == (second["name"] if second else other)


def require_trusted_keys(keys: Sequence[str] | None) -> None:
    """Raise UsageError if signatures are required, of these keys, and none of them could have made one."""
    if keys is not None and not key_files(keys):
        remedy = 'name a public key: --key FILE.pub, or keys = ["FILE.pub"] in sifmark.toml'
        raise UsageError("no key is trusted here that could sign results", remedy, code="no-trusted-key")
