"""The audit command: give an image's list of packages to an installed vulnerability scanner.

Command lines and exit codes are those of Grype 0.116 (`grype --help`; 2 since 0.91.1), OSV-Scanner 2.5
(docs/scan-source.md, docs/output.md) and Trivy 0.74 (references/configuration/cli/trivy_sbom.md).
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.commands.arguments import after_dashes
from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.process import CompletedCommand, run
from sifmark.core.settings import settings
from sifmark.engines.locate import engine_for, locate

_DOCUMENT = "sifmark.cdx.json"  # OSV-Scanner reads the format from the name


@dataclass(frozen=True)
class Scanner:
    """A program that looks up the packages of a CycloneDX document."""

    program: str
    arguments: tuple[str, ...]  # {} is the path of the document
    vulnerable: int  # the exit code that means: there are vulnerabilities
    limits: str  # what it overlooks in our documents

    def command(self, document: Path, options: Sequence[str]) -> list[str]:
        """Return the argv that scans a document."""
        return [self.program, *(word.format(document) for word in self.arguments), *options]


# In order of preference. The limits are of how each reads the qualifiers `distro` and `upstream` of package URLs, by
# its source code; all three look up Python packages.
SCANNERS = (
    Scanner("grype", ("sbom:{}", "--fail-on", "negligible"), 2, "a vulnerability of unknown severity is only listed"),
    Scanner(
        "osv-scanner",
        ("scan", "source", "--lockfile", "{}"),
        1,
        "Debian packages are looked up by their own names, not by their sources'; Grype knows both",
    ),
    # Without --exit-code Trivy answers 0 whatever it finds; its own failures are 1.
    Scanner("trivy", ("sbom", "--exit-code", "10", "{}"), 10, "packages of the system are left out; Grype reads them"),
)


def audit(name: str, scanner: str, command_line: Sequence[str]) -> None:
    """Scan an image, or a CycloneDX document `FILE.json`, and print what the scanner prints.

    What follows `--` on the command line goes to the scanner. Raises SifmarkError if it reports vulnerabilities, fails
    or is not installed.
    """
    chosen = choose_scanner(scanner)
    document = read_document(name)
    with tempfile.TemporaryDirectory(prefix="sifmark-audit-") as folder:
        path = Path(folder) / _DOCUMENT
        path.write_bytes(document)
        finished = _scan(chosen.command(path, after_dashes(command_line)))
    _judge(name, chosen, finished)


def choose_scanner(name: str) -> Scanner:
    """Return the scanner of that name, or without a name the first one installed."""
    by_name = {scanner.program: scanner for scanner in SCANNERS}
    if name and name not in by_name:
        raise unknown_name("scanner", name, by_name)
    wanted = [by_name[name]] if name else SCANNERS
    for scanner in wanted:
        if shutil.which(scanner.program):
            return scanner
    names = ", ".join(scanner.program for scanner in wanted)
    raise SifmarkError(
        f"no vulnerability scanner on PATH: {names}",
        "install Grype, OSV-Scanner or Trivy as its project describes, then run inv audit again",
    )


def read_document(name: str) -> bytes:
    """Return the CycloneDX document of an image or a file. Raises SifmarkError if there is none."""
    if name.endswith(".json"):
        where, text = name, _read(Path(name))
    else:
        engine = engine_for(name, settings())
        where = locate(name, engine)
        text = engine.inspect(where).sboms().get(CYCLONEDX, b"")
    try:
        count = len(json.loads(text)["components"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SifmarkError(
            f"{where} has no list of packages in CycloneDX format: {error}", "build the image again: inv build"
        ) from error
    status(f"  {count} components in {where}")
    return text


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name an image, or a CycloneDX file that exists") from error


def _scan(command: Sequence[str]) -> CompletedCommand:
    return run(
        command,
        watch_output=lambda line: output(printable(line.expandtabs())),
        watch_errors=lambda line: status(printable(line.expandtabs())),
        time_limit=settings().time_limit,
        check=False,
    )


def _judge(name: str, scanner: Scanner, finished: CompletedCommand) -> None:
    """Say how a scan ended. Raises SifmarkError if it failed or reported vulnerabilities."""
    if finished.exit_code == scanner.vulnerable:
        raise SifmarkError(
            f"{name}: {scanner.program} reports vulnerabilities",
            "take a newer base or newer wheels (inv pins --update, inv lock RECIPE), and build again",
        )
    if finished.exit_code != 0:
        raise SifmarkError(
            f"{scanner.program} failed with exit code {finished.exit_code}; {name} is not audited",
            "see its messages above; options after -- go to it, for example for work without a network",
        )
    status(f"{name}: {scanner.program} reports no vulnerabilities")
    status(f"  note: {scanner.limits}")
