"""Commands for one image: render, sign, reproduce, convert, audit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, answer_record
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import human_size, read_bounded, write_text
from sifmark.core.terminal import output, status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.attestations.scanners import Scanner
    from sifmark.core.process import CompletedCommand
    from sifmark.core.settings import Settings
    from sifmark.publish.reports import SigningKey

_LARGEST_SBOM = 256 * 1024 * 1024  # bytes; a package takes some hundred
_DOCUMENT = "sifmark.cdx.json"  # OSV-Scanner reads the format from the name


@cli.command("image.render", example="image.render cpu --format dockerfile")
@cli.image_argument
@cli.option("--format", "File to print. [default: def]", name="kind", choices=("def", "dockerfile"))
@cli.bases_option
def render(name: str, settings: Settings, kind: str = "def") -> None:
    """Print a definition file or a Dockerfile."""
    from sifmark.builds.image import render as build_file

    sys.stdout.write(build_file(name, kind, settings))


@cli.command("image.sign", example="image.sign cpu --key site.pem")
@cli.image_argument
@cli.private_key_option
@cli.pgp_option
@cli.registry_option
@cli.tag_option
@cli.format_option
@cli.engine_option
def sign(
    name: str, settings: Settings, key: str = "", pgp: str = "", registry: str = "", tag: str = "", form: str = TABLE
) -> None:
    """Sign an image: its file system, labels, SBOM and provenance.

    A Docker image is signed with cosign in the registry that it was pushed to; --registry and --tag are for those.
    """
    from sifmark.engines import open_engine
    from sifmark.publish.publisher import publisher_of

    engine = open_engine(settings)
    report = publisher_of(engine).sign(name, signing_key(key, pgp), registry, tag, engine, settings)
    write = output if report.published else status
    answer_record(form, {"reference": report.reference, "published": report.published}, lambda: write(report.summary))


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
    from sifmark.publish.reports import SigningKey

    if key:
        _require_private(Path(key))
    return SigningKey(Path(key) if key else None, pgp)


@cli.command("image.reproduce", example="image.reproduce cpu")
@cli.image_argument
@cli.format_option
@cli.engine_option
def reproduce(name: str, settings: Settings, form: str = TABLE) -> None:
    """Rebuild an image from scratch and check that it is the same."""
    from sifmark.builds.reproduce import REPRODUCTION_REMEDY, reproduce_image
    from sifmark.engines import open_engine
    from sifmark.recipes.names import find_recipe

    result = reproduce_image(find_recipe(name), open_engine(settings), settings)
    document = {
        "recipe": result.recipe,
        "reproduced": result.difference is None,
        "identity": result.identity,
        "difference": result.difference,
        "seconds": round(result.seconds, 1),
    }
    text = f"{result.address}: {result.difference or f'identical, {result.identity}'}"
    answer_record(form, document, lambda: output(text))
    if result.difference is not None:
        cause = f"{result.address} was not reproduced: {result.difference}"
        raise SifmarkError(cause, REPRODUCTION_REMEDY, code="not-reproduced")


@cli.command("image.to-sif", example="image.to-sif cpu")
@cli.image_argument
@cli.flag("--force", "Convert even if the SIF is up to date.")
@cli.format_option
def to_sif(name: str, settings: Settings, force: bool = False, form: str = TABLE) -> None:
    """Convert a Docker image that was built here to a SIF."""
    from sifmark.builds.conversion import convert_to_sif
    from sifmark.recipes.names import find_recipe

    recipe = find_recipe(name)
    conversion = convert_to_sif(recipe, settings, force)
    image = conversion.image
    if image:
        text = f"converted from {conversion.source}, {human_size(image.size)}, {image.identity}"
    else:
        text = "up to date, nothing to convert; --force does it all the same"
    facts = {"size": image.size, "identity": image.identity} if image else {"size": None, "identity": None}
    document = {"recipe": recipe, "source": conversion.source, "converted": image is not None, **facts}
    answer_record(form, document, lambda: status(f"{recipe}.sif: {text}"))


@cli.command("image.audit", example="image.audit cpu")
@cli.argument("name", "An image, its file, or a CycloneDX document FILE.json.", "NAME", completes="image")
@cli.words_argument("scanner")
@cli.option("--scanner", "[default: the first of these on PATH]", choices=("grype", "osv-scanner", "trivy"))
@cli.option("--sarif", "Write the report to this file, as SARIF for CI.", "FILE")
def audit(name: str, settings: Settings, scanner: str = "", arguments: Sequence[str] = (), sarif: str = "") -> None:
    """Scan an image's packages for known vulnerabilities."""
    import tempfile

    from sifmark.attestations.scanners import choose_scanner

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
        from sifmark.attestations.sbom import CYCLONEDX
        from sifmark.engines.locate import engine_for, locate

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
        return read_bounded(path, _LARGEST_SBOM)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy, code="file-unreadable") from error
    except ValueError as error:
        raise UsageError(f"{path} has more than {human_size(_LARGEST_SBOM)}", remedy, code="file-unreadable") from error


def _scan(command: Sequence[str], time_limit: float, collected: bool) -> CompletedCommand:
    """Run a scanner. Its output is printed line by line, or collected."""
    from sifmark.core.process import run

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
