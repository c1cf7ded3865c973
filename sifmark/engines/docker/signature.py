"""Signatures of Docker images in a registry: made and verified by cosign 2, with the site's own keys.

A signature is a tag beside the image, `sha256-<digest>.sig`. No public log is written or queried: a site without a
network could not reach one.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UNTRUSTED_REMEDY, RegistryError, SifmarkError
from sifmark.core.keys import key_files, key_id
from sifmark.core.process import CommandError, run
from sifmark.engines import CheckFailed
from sifmark.oci.images import connect
from sifmark.oci.manifest import MANIFESTS

_PROGRAM = "cosign"
_EXIT_UNSIGNED, _EXIT_OTHER_KEYS = 10, 12  # cosign's exit codes for no signatures, and for none by the key


def sign(references: Sequence[str], key: Path) -> None:
    """Sign what references by digest name, all in one registry, with a private key in PEM form. Raises SifmarkError."""
    login = f"may this login write there? docker login {references[0].partition('/')[0]}"
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        imported = Path(folder) / "key"
        argv: list[str | Path] = [_program(), "import-key-pair", "--key", key, "--output-key-prefix", imported]
        run(
            argv,
            remedy="make one that it takes: openssl genpkey -algorithm ed25519 -out FILE.pem",
            environment={"COSIGN_PASSWORD": ""},
        )
        argv = [_program(), "sign", "--key", imported.with_suffix(".key"), "--tlog-upload=false", "--yes", *references]
        run(argv, remedy=login, environment={"COSIGN_PASSWORD": ""})


def signer(reference: str, keys: Sequence[str]) -> str:
    """Return which of the keys that this site trusts has signed what a reference by digest names.

    Raises CheckFailed if none has.
    """
    files = key_files(keys)  # fingerprints are of PGP keys, for SIF files
    if not files:
        remedy = 'name keys in sifmark.toml: keys = ["site.pub"]'
        raise CheckFailed(f"{reference}: no key is trusted here", remedy, code="no-trusted-key")
    for key in files:
        command = run([_program(), "verify", "--key", key, "--insecure-ignore-tlog=true", reference], check=False)
        if command.exit_code == 0:
            return key_id(key)
        if command.exit_code == _EXIT_UNSIGNED:
            raise CheckFailed("it is not signed", UNTRUSTED_REMEDY, code="signature-missing")
        if command.exit_code != _EXIT_OTHER_KEYS:
            cause = f"cosign verify failed: {' '.join(command.tail)[-300:]}"
            raise CommandError(cause, "run it by hand to see", code="command-failed")
    cause = "its signature is by none of the keys that this site trusts"
    raise CheckFailed(cause, UNTRUSTED_REMEDY, code="signature-untrusted")


def signed(reference: str) -> bool:
    """Return whether a registry has a signature, by any key, of what a reference by digest names.

    Raises RegistryError.
    """
    address, _, digest = reference.partition("@")
    host, _, repository = address.partition("/")
    path = f"{repository}/manifests/{digest.replace(':', '-')}.sig"
    response = connect(host).request("HEAD", path, headers={"Accept": ", ".join(MANIFESTS)})
    if response.status_code in (200, 404):
        return response.status_code == 200
    cause = f"{reference}: answers with {response.status_code} when asked for its signature"
    raise RegistryError(cause, "is it up?", code="registry-refused")


def _program() -> str:
    if shutil.which(_PROGRAM) is None:
        cause, remedy = "signatures of Docker images need cosign, which is not here", "ci/setup/cosign installs it"
        raise SifmarkError(cause, f"{remedy}, on Debian", code="program-missing")
    return _PROGRAM
