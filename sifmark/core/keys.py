"""The keys whose signatures a site trusts: files of public keys, and fingerprints of PGP keys."""

import re
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import sha256_file

FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
_HASHED = re.compile(r"(?P<name>.*) \((?P<hash>[0-9a-f]{12})\)")


def key_files(keys: Sequence[str]) -> list[Path]:
    """Those of a site's keys that are files, not fingerprints. Raises UsageError for one that is not there."""
    files = {key: Path(key).expanduser() for key in keys if not FINGERPRINT.fullmatch(key)}
    for key, file in files.items():
        if not file.is_file():
            raise UsageError(f"there is no key {key}", "correct --key, or `keys` in sifmark.toml")
    return list(files.values())


def key_id(key: Path) -> str:
    """What a key is called in results: each site names its files in its own way, so its hash begins there too."""
    return f"{key.name} ({sha256_file(key).removeprefix('sha256:')[:12]})"


def same_key(one: str, other: str) -> bool:
    """Whether two of these names are of one key: by the hashes, or by the names alone where one tells no hash."""
    first, second = _HASHED.fullmatch(one), _HASHED.fullmatch(other)
    if first and second:
        return first["hash"] == second["hash"]
    return (first["name"] if first else one) == (second["name"] if second else other)
