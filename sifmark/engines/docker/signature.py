"""Signatures of Docker images in a registry: made and checked by cosign 2, with the site's own keys.

A signature is a tag beside the image, `sha256-<digest>.sig`. No public log is written or asked: a site without a
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
from sifmark.oci.reference import MANIFESTS

_PROGRAM = "cosign"
_NONE, _OTHERS = 10, 12  # cosign's exit codes for no signatures and for none that the key made


def sign(references: Sequence[str], key: Path) -> None:
    """Sign what references by digest name, all of one registry, with a private key in PEM form. Raises SifmarkError."""
    login = f"may this login write there? docker login {references[0].partition('/')[0]}"
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        own = Path(folder) / "key"
        words: list[str | Path] = [_program(), "import-key-pair", "--key", key, "--output-key-prefix", own]
        run(
            words,
            remedy="make one that it takes: openssl genpkey -algorithm ed25519 -out FILE.pem",
            environment={"COSIGN_PASSWORD": ""},
        )
        words = [_program(), "sign", "--key", own.with_suffix(".key"), "--tlog-upload=false", "--yes", *references]
        run(words, remedy=login, environment={"COSIGN_PASSWORD": ""})


def signer(reference: str, keys: Sequence[str]) -> str:
    """Which of the keys that this site trusts has signed what a reference by digest names. Raises Refuted for none."""
    files = key_files(keys)  # fingerprints are of PGP, for SIF files
    if not files:
        raise CheckFailed(f"{reference}: no key is trusted here", 'name keys in sifmark.toml: keys = ["site.pub"]')
    for key in files:
        done = run([_program(), "verify", "--key", key, "--insecure-ignore-tlog=true", reference], check=False)
        if done.exit_code == 0:
            return key_id(key)
        if done.exit_code == _NONE:
            raise CheckFailed("it is not signed", UNTRUSTED_REMEDY)
        if done.exit_code != _OTHERS:
            raise CommandError(f"cosign verify failed: {' '.join(done.tail)[-300:]}", "run it by hand to see")
    raise CheckFailed("its signature is by none of the keys that this site trusts", UNTRUSTED_REMEDY)


def signed(reference: str) -> bool:
    """Whether a registry has a signature of what a reference by digest names, whosever. Raises RegistryError."""
    address, _, digest = reference.partition("@")
    host, _, repository = address.partition("/")
    path, accepted = f"{repository}/manifests/{digest.replace(':', '-')}.sig", {"Accept": ", ".join(MANIFESTS)}
    answer = connect(host).ask("HEAD", path, headers=accepted)
    if answer.status_code in (200, 404):
        return answer.status_code == 200
    raise RegistryError(f"{reference}: answers with {answer.status_code} when asked for its signature", "is it up?")


def _program() -> str:
    if shutil.which(_PROGRAM) is None:
        raise SifmarkError(
            "signatures of Docker images need cosign, which is not here", "ci/setup/cosign installs it, on Debian"
        )
    return _PROGRAM
