"""The image.sign command."""

from pathlib import Path

from sifmark.commands.answers import TABLE, answer_record
from sifmark.core.console import output, status
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.publisher import publisher_of
from sifmark.publish.reports import SigningKey, SignReport


def sign(
    name: str, key: str, pgp: str, settings: Settings, registry: str = "", tag: str = "", form: str = TABLE
) -> None:
    """Sign a recipe's image with a private key in PEM form; a SIF also with one of Apptainer's PGP keyring, by number.

    A SIF carries its signature; that of a Docker image is beside it in the registry. Raises SifmarkError.
    """
    engine = open_engine(settings)
    report = publisher_of(engine).sign(name, signing_key(key, pgp), registry, tag, engine, settings)
    answer_record(form, {"reference": report.reference, "published": report.published}, lambda: _show(report))


def _show(report: SignReport) -> None:
    (output if report.published else status)(report.summary)


def _require_private(key: Path) -> None:
    """Raise UsageError unless a file is there that is not a public key."""
    if not key.is_file():
        remedy = "make a key: openssl genpkey -algorithm ed25519 -out FILE.pem"
        raise UsageError(f"there is no file {key}", remedy, code="key-unusable")
    if b"PUBLIC KEY-----" in key.read_bytes():
        remedy = "sign with the private key that belongs to it"
        raise UsageError(f"{key} is a public key; signing needs the private one", remedy, code="key-unusable")


def signing_key(key: str, pgp: str) -> SigningKey:
    """Return the key that two options name. Raises UsageError unless one of them names a key."""
    if bool(key) == bool(pgp):
        remedy = "name one: --key FILE.pem, or --pgp NUMBER of apptainer key list --secret"
        raise UsageError("which key should sign?", remedy, code="invalid-option")
    if pgp and not pgp.isdigit():
        remedy = "apptainer key list --secret shows the numbers"
        raise UsageError(f"--pgp {pgp!r} is no number", remedy, code="invalid-option")
    if key:
        _require_private(Path(key))
    return SigningKey(Path(key) if key else None, pgp)
