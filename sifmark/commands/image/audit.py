"""The image.audit command: give an image's list of packages to an installed vulnerability scanner."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.attestations.scanners import Scanner, choose_scanner
from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import human_size, read_bounded, write_text
from sifmark.core.process import CompletedCommand, run
from sifmark.core.settings import Settings
from sifmark.engines.locate import engine_for, locate

_MOST = 256 * 1024 * 1024  # bytes of a list of packages, which is some hundred bytes for each
_DOCUMENT = "sifmark.cdx.json"  # OSV-Scanner reads the format from the name


def audit(name: str, settings: Settings, scanner: str, arguments: Sequence[str], sarif: str = "") -> None:
    """Scan an image, or a CycloneDX document `FILE.json`, and print what the scanner prints.

    The arguments go to the scanner. With `sarif`, a file, its report goes there in place of standard output. Raises
    SifmarkError if it reports vulnerabilities, fails or is not installed.
    """
    chosen = choose_scanner(scanner)
    document = read_document(name, settings)
    with tempfile.TemporaryDirectory(prefix="sifmark-audit-") as folder:
        path = Path(folder) / _DOCUMENT
        path.write_bytes(document)
        completed = _scan(chosen.command(path, arguments, sarif=bool(sarif)), settings.time_limit, bool(sarif))
    if sarif and completed.exit_code in (0, chosen.vulnerable):
        _write_sarif(completed.output, Path(sarif), chosen)
    _judge(name, chosen, completed)


def read_document(name: str, settings: Settings) -> bytes:
    """Return the CycloneDX document of an image or a file. Raises SifmarkError if there is none."""
    if name.endswith(".json"):
        source, document = name, _read(Path(name))
    else:
        engine = engine_for(name, settings)
        source = locate(name, engine)
        document = engine.inspect(source).sboms().get(CYCLONEDX, b"")
    try:
        count = len(json.loads(document)["components"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        cause = f"{source} has no list of packages in CycloneDX format: {error}"
        raise SifmarkError(cause, "build the image again: sifmark build", code="document-invalid") from error
    status(f"  {count} components in {source}")
    return document


def _read(path: Path) -> bytes:
    remedy = "name an image, or a CycloneDX file that exists"
    try:
        return read_bounded(path, _MOST)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy, code="file-unreadable") from error
    except ValueError as error:
        raise UsageError(f"{path} has more than {human_size(_MOST)}", remedy, code="file-unreadable") from error


def _scan(command: Sequence[str], time_limit: float, collected: bool) -> CompletedCommand:
    """Run a scanner. Its output is printed line by line, or collected."""
    return run(
        command,
        watch_output=None if collected else lambda line: output(printable(line.expandtabs())),
        watch_errors=lambda line: status(printable(line.expandtabs())),
        time_limit=time_limit,
        check=False,
    )


def _write_sarif(text: str, path: Path, scanner: Scanner) -> None:
    """Write a report in SARIF. Raises SifmarkError for anything else."""
    try:
        if "runs" not in json.loads(text):
            raise ValueError("it has no runs")
    except (ValueError, TypeError, RecursionError) as error:
        cause = f"{scanner.program} did not print SARIF: {error}"
        raise SifmarkError(cause, "leave out a format after --, or --sarif", code="command-failed") from error
    write_text(path, text)
    status(f"  SARIF: {path}")


def _judge(name: str, scanner: Scanner, completed: CompletedCommand) -> None:
    """Report how a scan ended. Raises SifmarkError if it failed or reported vulnerabilities."""
    if completed.exit_code == scanner.vulnerable:
        raise SifmarkError(
            f"{name}: {scanner.program} reports vulnerabilities",
            "take a newer base (sifmark recipe.pin --update) or newer wheels (sifmark recipe.lock), and build again",
            code="vulnerabilities-reported",
        )
    if completed.exit_code != 0:
        raise SifmarkError(
            f"{scanner.program} failed with exit code {completed.exit_code}; {name} is not audited",
            "see its messages above; options after -- go to it, for example for work without a network",
            code="command-failed",
        )
    status(f"{name}: {scanner.program} reports no vulnerabilities")
    status(f"  note: {scanner.limits}")
