"""Installed scanners that look up the packages of a CycloneDX document in lists of vulnerabilities.

Command lines and exit codes are those of Grype 0.116 (`grype --help`; 2 since 0.91.1), OSV-Scanner 2.5
(docs/scan-source.md, docs/output.md) and Trivy 0.74 (references/configuration/cli/trivy_sbom.md).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.errors import SifmarkError, unknown_name


@dataclass(frozen=True)
class Scanner:
    """A program that looks up the packages of a CycloneDX document."""

    program: str
    arguments: tuple[str, ...]  # {} is the path of the document
    vulnerable: int  # the exit code that means: there are vulnerabilities
    limits: str  # what it overlooks in our documents
    sarif: tuple[str, ...]  # prints SARIF in place of a table

    def command(self, document: Path, options: Sequence[str], *, sarif: bool = False) -> list[str]:
        """Return the argv that scans a document, and prints a table or SARIF."""
        form = self.sarif if sarif else ()
        return [self.program, *(word.format(document) for word in self.arguments), *form, *options]


# In order of preference. The limits are of how each reads the qualifiers `distro` and `upstream` of package URLs, by
# its source code; all three look up Python packages.
SCANNERS = (
    Scanner(
        "grype",
        ("sbom:{}", "--fail-on", "negligible"),
        2,
        "a vulnerability of unknown severity is only listed",
        ("--output", "sarif"),
    ),
    Scanner(
        "osv-scanner",
        ("scan", "source", "--lockfile", "{}"),
        1,
        "Debian packages are looked up by their own names, not by their sources'; Grype knows both",
        ("--format", "sarif"),
    ),
    # Without --exit-code Trivy answers 0 whatever it finds; its own failures are 1.
    Scanner(
        "trivy",
        ("sbom", "--exit-code", "10", "{}"),
        10,
        "it skips system packages; Grype reads them",
        ("--format", "sarif"),
    ),
)


def choose_scanner(name: str) -> Scanner:
    """Return the scanner of that name, or of any if it is empty, that is installed. Raises SifmarkError."""
    by_name = {scanner.program: scanner for scanner in SCANNERS}
    if name and name not in by_name:
        raise unknown_name("scanner", name, by_name)
    candidates = [by_name[name]] if name else SCANNERS
    for scanner in candidates:
        if shutil.which(scanner.program):
            return scanner
    raise SifmarkError(
        f"no vulnerability scanner on PATH: {', '.join(scanner.program for scanner in candidates)}",
        "install Grype, OSV-Scanner or Trivy as its project describes, then run sifmark image.audit again",
        code="program-missing",
    )
