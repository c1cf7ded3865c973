"""The results.sign and results.verify commands: envelopes beside result files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sifmark.commands.answers import Table, answer
from sifmark.core.console import is_quiet, output, paint, printable, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.keys import key_files
from sifmark.core.settings import Settings
from sifmark.results.envelope import sign_results, signer_of
from sifmark.results.load import files_of


def sign_files(paths: Iterable[str], key: str, settings: Settings, form: str) -> None:
    """Write an envelope beside each file of results, by `key` or else the site's `results_key`. Raises SifmarkError."""
    private = Path(key) if key else settings.results_key
    if private is None:
        remedy = "name one: --key FILE.pem, or results_key in sifmark.toml"
        raise UsageError("which key should sign?", remedy, code="invalid-option")
    envelopes = {file: sign_results(Path(file), private) for file in files_of(paths)}
    documents = [{"file": file, "envelope": str(envelope)} for file, envelope in envelopes.items()]
    rows = [(file, str(envelope)) for file, envelope in envelopes.items()]
    answer(form, documents, Table(("file", "envelope"), rows), lambda: _show_signed(envelopes))


def _show_signed(envelopes: dict[str, Path]) -> None:
    for envelope in envelopes.values():
        output(f"signed: {printable(str(envelope))}")


def verify_files(paths: Iterable[str], settings: Settings, form: str) -> None:
    """Print by whom each file of results is signed. Raises SifmarkError if one is not signed by a key trusted here."""
    if not key_files(settings.keys):
        remedy = 'name a public key: --key FILE.pub, or keys = ["FILE.pub"] in sifmark.toml'
        raise UsageError("no key is trusted here that could sign results", remedy, code="no-trusted-key")
    verdicts = [(file, *_verdict(Path(file), settings.keys)) for file in files_of(paths)]
    documents = [{"file": file, "signer": signer, "reason": reason} for file, signer, reason in verdicts]
    rows = [(file, _state(signer), signer or reason) for file, signer, reason in verdicts]
    answer(form, documents, Table(("file", "state", "detail"), rows), lambda: _show_verified(rows))
    if refuted := [file for file, signer, _ in verdicts if signer is None]:
        cause = f"{len(refuted)} of {len(verdicts)} files are not signed by a key that is trusted here"
        raise SifmarkError(cause, "the lines above say why", code="signature-untrusted")
    status(f"{len(verdicts)} signed")


def _verdict(file: Path, keys: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the signer of a file, or None and the reason."""
    try:
        return signer_of(file, keys), None
    except SifmarkError as error:
        if isinstance(error, UsageError):
            raise
        return None, error.cause


def _state(signer: str | None) -> str:
    return "signed" if signer else "not signed"


def _show_verified(rows: Sequence[tuple[str, str, str | None]]) -> None:
    """Print a line for each file, if quiet only for those that no trusted key has signed."""
    for file, state, detail in rows:
        if state != "signed" or not is_quiet():
            output(f"{paint(state)}  {printable(file)}  {printable(detail or '')}")
