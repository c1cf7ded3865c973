"""Signatures in SIF files: verified by Apptainer, and compared with the keys that this site trusts."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UNTRUSTED_REMEDY, SifmarkError
from sifmark.core.keys import FINGERPRINT, key_files, key_id
from sifmark.core.process import CommandError, run
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.sif import SIGNATURE, Sif, read_sif

_NO_KEY_REMEDY = 'name keys in sifmark.toml: keys = ["site.pub"]'
_OTHER_KEY = "accepted signatures do not match"  # Apptainer's words, for a fault that we find ourselves
# What Apptainer says of a signature that is not valid, what that means, and its code; the gravest first.
_FAULTS = (
    (r"signature not found", "it is not signed", "signature-missing"),
    (r"signed object not found", "something that was signed was taken away", "signature-invalid"),
    (
        r"not associated with object group|object not signed",
        "something was added to it after it was signed",
        "signature-invalid",
    ),
    (r"integrity compromised|hash|digest", "its contents differ from what was signed", "signature-invalid"),
    (
        rf"{_OTHER_KEY}|unknown entity",
        "a signature is by none of the keys that this site trusts",
        "signature-untrusted",
    ),
)


def signed(sif: Sif) -> bool:
    """Return whether there is a signature in a SIF, by any key."""
    return any(entry.kind == SIGNATURE for entry in sif.descriptors)


def sign(path: Path, key: Path | None, keyring_number: str) -> None:
    """Sign all of a SIF, in place of its signatures until now: by a key in PEM form, or one of Apptainer's keyring.

    Apptainer verifies a SIF only if all its signatures are by the key that it is given. Raises CommandError.
    """
    for entry in read_sif(path).descriptors:
        if entry.kind == SIGNATURE:
            run(["apptainer", "sif", "del", str(entry.id), path])
    # Apptainer leaves the bytes of what it deletes: a shorter signature would not cover all of them.
    os.truncate(path, read_sif(path).end)
    options = ["--key", key.absolute()] if key else ["--keyidx", keyring_number]
    run(["apptainer", "sign", *options, path], remedy="is it a private key without a passphrase?")


def signer(path: Path, keys: Sequence[str]) -> str:
    """Return which of the keys that this site trusts has signed all of a SIF.

    Raises CheckFailed, with the reason, if none has.
    """
    if not keys:
        raise CheckFailed(f"{path.name}: no key is trusted here", _NO_KEY_REMEDY, code="no-trusted-key")
    if not signed(read_sif(path)):
        raise CheckFailed("it is not signed", UNTRUSTED_REMEDY, code="signature-missing")
    faults: list[str] = []
    for key in key_files(keys):
        command = run(["apptainer", "verify", "--key", key, path], check=False)
        if command.exit_code == 0:
            return key_id(key)
        faults += _faults(command.tail)
    if fingerprints := {key.lower() for key in keys if FINGERPRINT.fullmatch(key)}:
        command = run(["apptainer", "verify", "--local", "--json", path], check=False)
        if command.exit_code != 0:
            faults += _faults(command.tail)
        elif (signers := _signers(command.output)) and signers <= fingerprints:
            return min(signers)
        else:
            faults.append(_OTHER_KEY)
    raise _gravest(faults)


def _signers(answer: str) -> set[str]:
    """Return the fingerprints of all PGP keys whose signatures are valid. Raises SifmarkError.

    Apptainer does not say which object a signature covers. Its exit code says that each object is signed by a key of
    the keyring. So a SIF is signed by a site's keys if all its signers are; a second signature of an object hides
    nothing.
    """
    try:
        return {_fingerprint(entry["Signer"]) for entry in json.loads(answer)["SignerKeys"]}
    except (ValueError, KeyError, TypeError) as error:
        cause = f"apptainer verify answers in another form: {error}"
        raise SifmarkError(cause, "which version is it?", code="engine-answer-unknown") from error


def _fingerprint(signer: dict[str, str]) -> str:
    """Return a signer's fingerprint; empty, and so trusted by nobody, if its signature is not valid."""
    return str(signer["Fingerprint"]).lower() if signer["KeyCheck"] and signer["DataCheck"] else ""


def _faults(lines: Sequence[str]) -> list[str]:
    """Return what Apptainer complains of, without its reports of progress, which quote file names of any text."""
    return [line for line in lines if not line.startswith("INFO")]


def _gravest(faults: Sequence[str]) -> SifmarkError:
    """Return the error for the gravest fault: that the content differs matters more than whose key it was."""
    for pattern, meaning, code in _FAULTS:
        if any(re.search(pattern, line) for line in faults):
            return CheckFailed(meaning, UNTRUSTED_REMEDY, code=code)
    cause = f"apptainer verify failed: {' '.join(faults)[-300:]}"
    return CommandError(cause, "run it by hand to see", code="command-failed")
