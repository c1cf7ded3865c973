"""Commands for one image."""

from typing import Annotated

from sifmark.commands.definition import BASES, ENGINE, Argument, Format, Option, RegistryName, Strings, Tag, command
from sifmark.core.settings import Settings

Image = Annotated[str, Argument("A recipe or one of its images.", "NAME", completes="image")]
PrivateKey = Annotated[str, Option("Private key in PEM form, without a passphrase.", "FILE", completes="file")]
PgpKey = Annotated[str, Option("Number of a key in Apptainer's keyring: apptainer key list --secret.", "NUMBER")]


@command("image.render", BASES, example="image.render cpu --format dockerfile", former="render")
def render(
    settings: Settings,
    name: Image,
    format_: Annotated[str, Option("File to print. [default: def]", choices=("def", "dockerfile"))] = "def",
) -> None:
    """Print a definition file or a Dockerfile."""
    from sifmark.commands.image.render import render as render_image

    render_image(name, format_, settings)


@command("image.sign", ENGINE, example="image.sign cpu --key site.pem", former="sign")
def sign(
    settings: Settings,
    name: Image,
    key: PrivateKey = "",
    pgp: PgpKey = "",
    registry: RegistryName = "",
    tag: Tag = "",
    format_: Format = "table",
) -> None:
    """Sign an image: its file system, labels, SBOM and provenance.

    A Docker image is signed with cosign in the registry that it was pushed to; --registry and --tag are for those.
    """
    from sifmark.commands.image.sign import sign as sign_image

    sign_image(name, key, pgp, settings, registry, tag, format_)


@command("image.reproduce", ENGINE, example="image.reproduce cpu", former="reproduce")
def reproduce(settings: Settings, name: Image, format_: Format = "table") -> None:
    """Rebuild an image from scratch and check that it is identical."""
    from sifmark.commands.image.reproduce import reproduce as build_again

    build_again(name, settings, format_)


@command("image.to-sif", example="image.to-sif cpu", former="convert")
def to_sif(
    settings: Settings,
    name: Image,
    force: Annotated[bool, Option("Convert even if the SIF is up to date.")] = False,
    format_: Format = "table",
) -> None:
    """Convert a Docker image that was built here to a SIF."""
    from sifmark.commands.image.to_sif import to_sif as convert

    convert(name, settings, format_, force=force)


@command("image.audit", example="image.audit cpu", former="audit")
def audit(
    settings: Settings,
    name: Annotated[str, Argument("An image, its file, or a CycloneDX document FILE.json.", "NAME", completes="image")],
    arguments: Annotated[Strings, Argument("Words for the scanner; put -- before them.", "[--] ARGUMENTS")] = (),
    scanner: Annotated[
        str, Option("[default: the first of these on PATH]", choices=("grype", "osv-scanner", "trivy"))
    ] = "",
    sarif: Annotated[str, Option("Write the report to this file, as SARIF for CI.", "FILE", completes="file")] = "",
) -> None:
    """Scan an image's packages for known vulnerabilities."""
    from sifmark.commands.image.audit import audit as scan

    scan(name, settings, scanner, arguments, sarif)
