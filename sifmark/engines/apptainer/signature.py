"""Signatures in SIF files: checked by Apptainer, judged by the keys that this site trusts."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UNTRUSTED_REMEDY, SifmarkError
from sifmark.core.keys import FINGERPRINT, key_files, key_id
from sifmark.core.process import CommandError, run
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.sif import SIGNATURE, Sif, read_sif

# What Apptainer says of a signature that does not hold, and what that means.
_FAULTS = (
    (r"signature not found", "it is not signed"),
    (r"signed object not found", "something that was signed was taken away"),
    (r"not associated with object group|object not signed", "something was added to it after it was signed"),
    (r"integrity compromised|hash|digest", "what it holds is not what was signed"),
    (r"accepted signatures do not match|unknown entity", "a signature is by none of the keys that this site trusts"),
)


def signed(sif: Sif) -> bool:
    """Whether there is a signature in it, whosever."""
    return any(entry.kind == SIGNATURE for entry in sif.descriptors)


def unsign(path: Path) -> None:
    """Take all signatures off a file."""
    for entry in read_sif(path).descriptors:
        if entry.kind == SIGNATURE:
            run(["apptainer", "sif", "del", str(entry.id), path])


def signer(path: Path, keys: Sequence[str]) -> str:
    """Which of the keys that this site trusts has signed all of a SIF. Raises Refuted where none has, and says why."""
    if not keys:
        raise CheckFailed(f"{path.name}: no key is trusted here", 'name keys in sifmark.toml: keys = ["site.pub"]')
    if not signed(read_sif(path)):
        raise CheckFailed("it is not signed", UNTRUSTED_REMEDY)
    said: list[str] = []
    for key in key_files(keys):
        done = run(["apptainer", "verify", "--key", key, path], check=False)
        if done.exit_code == 0:
            return key_id(key)
        said += _faults(done.tail)
    if fingerprints := {key.lower() for key in keys if FINGERPRINT.fullmatch(key)}:
        done = run(["apptainer", "verify", "--local", "--json", path], check=False)
        if done.exit_code != 0:
            said += _faults(done.tail)
        elif (found := _signers(done.output)) and found <= fingerprints:
            return min(found)
        else:
            said.append("accepted signatures do not match")
    raise CheckFailed(_meaning(said), UNTRUSTED_REMEDY)


def _signers(answer: str) -> set[str]:
    """The fingerprints of all PGP keys whose signatures hold. Raises SifmarkError.

    Which object a signature is of is not told; that each is signed by a key of the keyring, the exit code says. So a
    SIF is by the keys of a site where all its signers are, and a second signature of one object hides nothing.
    """
    try:
        told = [entry["Signer"] for entry in json.loads(answer)["SignerKeys"]]
        return {
            str(signer["Fingerprint"]).lower() if signer["KeyCheck"] and signer["DataCheck"] else "" for signer in told
        }
    except (ValueError, KeyError, TypeError) as error:
        raise SifmarkError(f"apptainer verify answers in another form: {error}", "which version is it?") from error


def _faults(said: Sequence[str]) -> list[str]:
    """What Apptainer found, without what it tells of its work: that names files, which may be called anything."""
    return [line for line in said if not line.startswith("INFO")]


def _meaning(said: Sequence[str]) -> str:
    """The gravest of what was said: that the content differs goes before whose key it was."""
    for pattern, meaning in _FAULTS:
        if any(re.search(pattern, line) for line in said):
            return meaning
    raise CommandError(f"apptainer verify failed: {' '.join(said)[-300:]}", "run it by hand to see")
