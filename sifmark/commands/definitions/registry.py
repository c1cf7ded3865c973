"""Commands for images in registries and folders."""

from typing import Annotated

from sifmark.commands.definition import (
    BASES,
    ENGINE,
    Argument,
    Format,
    JUnit,
    Keys,
    Option,
    RegistryName,
    Strings,
    Tag,
    command,
)
from sifmark.commands.definitions.image import Image, PgpKey, PrivateKey
from sifmark.core.settings import Settings

Catalog = Annotated[
    str, Option("Write catalog.json and index.html to this folder.", "FOLDER", short="o", completes="folder")
]


@command("registry.push", ENGINE, example="registry.push cpu", former="push")
def push(
    settings: Settings, name: Image, registry: RegistryName = "", tag: Tag = "", format_: Format = "table"
) -> None:
    """Push an image and its names to a registry."""
    from sifmark.commands.registry.push import push as push_image

    push_image(name, registry, tag, settings, format_)


@command("registry.publish", ENGINE, BASES, example="registry.publish cpu --key site.pem")
def publish(
    settings: Settings,
    name: Image,
    key: PrivateKey = "",
    pgp: PgpKey = "",
    trusted_key: Annotated[  # noqa: ARG001 - it is in the settings
        Strings,
        Option("Check the new signature with this public key. Repeatable.", "KEY", completes="file", setting="keys"),
    ] = (),
    registry: RegistryName = "",
    tag: Tag = "",
    output: Catalog = "",
    junit: JUnit = "",
    format_: Format = "table",
) -> None:
    """Build, verify, sign and push an image, with one summary.

    What is up to date is not built again. A step that fails ends the work. The SBOMs and the provenance are in the
    image; the registry's catalog is written if --output names a folder.
    """
    from sifmark.commands.image.sign import signing_key
    from sifmark.commands.registry.publish import publication_of
    from sifmark.commands.registry.publish import publish as publish_image

    signer = signing_key(key, pgp) if key or pgp else None
    publish_image(publication_of(name, registry, tag, signer, output, settings), format_, junit)


@command("registry.pull", ENGINE, example="registry.pull cpu --key site.pub", former="pull")
def pull(
    settings: Settings,
    name: Image,
    registry: RegistryName = "",
    tag: Tag = "",
    key: Keys = (),
    format_: Format = "table",
) -> None:
    """Pull an image after checking its digest and signature."""
    from sifmark.commands.registry.pull import pull as pull_image

    pull_image(name, registry, tag, settings, format_, signed=bool(key))


@command("registry.mirror", example="registry.mirror ./folder --name cpu", former="mirror")
def mirror(
    settings: Settings,
    target: Annotated[str, Argument("A folder (/PATH or ./PATH) or HOST/PATH of a registry.", completes="folder")],
    name: Annotated[
        Strings, Option("A recipe, an image or a quoted glob. Repeatable. [default: all]", completes="image")
    ] = (),
    registry: RegistryName = "",
    tag: Tag = "",
    format_: Format = "table",
) -> None:
    """Copy published images to another registry or to a folder."""
    from sifmark.commands.registry.mirror import mirror as copy
    from sifmark.recipes.names import EVERYTHING

    copy(target, name or (EVERYTHING,), registry, tag, settings, format_)


@command("registry.list", ENGINE, example="registry.list", former="catalog")
def list_registry(
    settings: Settings,
    registry: RegistryName = "",
    tag: Tag = "",
    output: Catalog = "",
    format_: Format = "table",
) -> None:
    """List published images, or write a catalog page."""
    from sifmark.commands.registry.list import catalog

    catalog(registry, tag, output, settings, format_)
