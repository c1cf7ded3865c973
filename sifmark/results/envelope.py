"""Signed results: DSSE envelopes beside result files, each with an in-toto statement about its file.

Formats: github.com/secure-systems-lab/dsse, version 1; github.com/in-toto/attestation, spec/v1.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark import __version__
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import compact_json, read_bounded, sha256_bytes, sha256_file, write_text
from sifmark.core.keys import key_files, key_id, require_trusted_keys
from sifmark.results.load import load_file, parse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
    from securesystemslib.dsse import Envelope

SUFFIX = ".dsse"  # of an envelope, after the name of its file
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://sifmark.org/result/v1"
ACCEPTANCE = "https://sifmark.org/acceptance/v1"  # of what `study.accept` writes
_LARGEST = 4 << 20  # bytes of an envelope; one over ten thousand results takes less
_UNTRUSTED_REMEDY = "do not rely on it; ask where it came from, or trust its key: keys in sifmark.toml"
_KEY_REMEDY = "make a key: openssl genpkey -algorithm ed25519 -out FILE.pem"


def envelope_path(file: Path) -> Path:
    """Return where the envelope of a result file is."""
    return file.with_name(file.name + SUFFIX)


def sign_results(file: Path, key: Path) -> Path:
    """Sign a file of results with a private key in PEM form. Return the envelope, which replaces an earlier one.

    Raises SifmarkError if a result is not valid, UsageError if the key cannot be used.
    """
    before = sha256_file(file)
    results = list(load_file(str(file)))
    if problem := next((result.problems[0] for result in results if result.problems), None):
        raise SifmarkError(f"{file} is not signed: {problem}", "sign valid results only", code="result-invalid")
    listed = [{"id": each.document["id"], "image": _image_of(each.document)} for each in results]
    return sign_document(file, key, PREDICATE, {"results": listed}, before)


def sign_document(file: Path, key: Path, predicate_type: str, predicate: dict[str, Any], digest: str = "") -> Path:
    """Sign a statement about a file, which still has to have this digest, and return the envelope.

    Who signed and with which sifmark is added to the predicate. Raises as `sign_results` does.
    """
    from securesystemslib.dsse import Envelope  # late: only signatures need it
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    private = _private_key(key)
    before = digest or sha256_file(file)
    stated = {**predicate, "signer": _signer(key, private), "sifmark": __version__}
    envelope = Envelope(_statement(file.name, before, predicate_type, stated), PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(private))
    if sha256_file(file) != before:
        raise SifmarkError(f"{file} was changed while it was signed", "sign it again", code="digest-mismatch")
    write_text(envelope_path(file), json.dumps(envelope.to_dict(), indent=1) + "\n")
    return envelope_path(file)


def signer_of(file: Path, keys: Sequence[str]) -> str:
    """Return which of the keys that a site trusts has signed a result file. PGP keys sign no results.

    Raises SifmarkError, with the reason, if none has.
    """
    from securesystemslib.exceptions import VerificationError  # late: only signatures need it

    path = envelope_path(file)
    if not path.exists():
        raise SifmarkError("it is not signed", _UNTRUSTED_REMEDY, code="signature-missing")
    envelope = _read(path)
    for trusted in key_files(keys):
        try:
            envelope.verify([_public_key(trusted)], 1)
        except VerificationError:
            continue
        _require_about(envelope, file)
        return key_id(trusted)
    cause = "its signature is by none of the keys that this site trusts, or is not valid"
    raise SifmarkError(cause, _UNTRUSTED_REMEDY, code="signature-untrusted")


def require_unchanged(file: Path) -> None:
    """Raise SifmarkError if a file differs from what its envelope is about, whoever signed that."""
    _require_about(_read(envelope_path(file)), file)


def require_usable(keys: Sequence[str]) -> None:
    """Raise UsageError unless some of the keys that a site trusts could sign results, and each of those reads."""
    require_trusted_keys(keys)
    for trusted in key_files(keys):
        _public_key(trusted)


def _statement(name: str, digest: str, predicate_type: str, predicate: dict[str, Any]) -> bytes:
    """Return the statement about a file with this digest."""
    return compact_json(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def _image_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return what identifies the image of a result; None if it was not made by one."""
    image = document["provenance"]["image"]
    if image is None:
        return None
    return {"recipe": image["recipe"], "build_key": image["build_key"], "identity": image["file"]["identity"]}


def _read(path: Path) -> "Envelope":
    """Return an envelope. Raises SifmarkError for a file that is none."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError

    try:
        envelope = Envelope.from_dict(parse(read_bounded(path, _LARGEST)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, FormatError) as error:
        remedy = "sign the result again: sifmark results.sign"
        raise SifmarkError(f"{path} is no DSSE envelope: {error}", remedy, code="document-invalid") from error
    if envelope.payload_type != PAYLOAD_TYPE:
        cause = f"{path} holds {envelope.payload_type!r}, not an in-toto statement"
        raise SifmarkError(cause, "sign the result again: sifmark results.sign", code="document-invalid")
    return envelope


def _require_about(envelope: "Envelope", file: Path) -> None:
    """Raise SifmarkError unless the statement of a signed envelope describes the current content of a file."""
    digest = sha256_file(file).removeprefix("sha256:")
    try:
        statement = parse(envelope.payload)
        kinds = (statement["_type"], statement["predicateType"])
        digests = [subject["digest"]["sha256"] for subject in statement["subject"]]
    except (ValueError, LookupError, TypeError) as error:
        cause = f"its statement cannot be read: {error}"
        raise SifmarkError(cause, _UNTRUSTED_REMEDY, code="document-invalid") from error
    if kinds not in ((STATEMENT, PREDICATE), (STATEMENT, ACCEPTANCE)) or digests != [digest]:
        cause = "it differs from what was signed"
        raise SifmarkError(cause, "get the file again from where it was signed", code="signature-invalid")


def _private_key(path: Path) -> "PrivateKeyTypes":
    """Return a private key without a passphrase. Raises UsageError."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", _KEY_REMEDY, code="key-unusable") from error
    except (OSError, ValueError, TypeError) as error:
        cause = f"{path} is no private key without a passphrase: {str(error).splitlines()[0]}"
        raise UsageError(cause, _KEY_REMEDY, code="key-unusable") from error


def _public_key(path: Path) -> Any:
    """Return a trusted key as securesystemslib has it. Raises UsageError."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    try:
        return SSlibKey.from_crypto(load_pem_public_key(path.read_bytes()))
    except (OSError, ValueError) as error:
        cause = f"{path} is no public key in PEM form: {str(error).splitlines()[0]}"
        remedy = "make it from the private one: openssl pkey -in FILE.pem -pubout -out FILE.pub"
        raise UsageError(cause, remedy, code="key-unusable") from error


def _signer(path: Path, private: "PrivateKeyTypes") -> str:
    """Return the name that the public half of a key has in results: of the file that OpenSSL makes of it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public: PublicKeyTypes = private.public_key()
    text = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{path.stem}.pub ({sha256_bytes(text).removeprefix('sha256:')[:12]})"
