"""Commands for images in registries and folders."""

from typing import Annotated

from sifmark.commands.definition import ENGINE, Argument, Format, Keys, Option, RegistryName, Strings, Tag, command
from sifmark.commands.definitions.image import Image
from sifmark.core.settings import Settings


@command("registry.push", ENGINE, example="registry.push cpu", former="push")
def push(
    settings: Settings, name: Image, registry: RegistryName = "", tag: Tag = "", format_: Format = "table"
) -> None:
    """Push an image and its names to a registry."""
    from sifmark.commands.registry.push import push as push_image

    push_image(name, registry, tag, settings, format_)


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
) -> None:
    """Copy published images to another registry or to a folder."""
    from sifmark.commands.registry.mirror import mirror as copy
    from sifmark.recipes.names import EVERYTHING

    copy(target, name or (EVERYTHING,), registry, tag, settings)


@command("registry.list", ENGINE, example="registry.list", former="catalog")
def list_registry(
    settings: Settings,
    registry: RegistryName = "",
    tag: Tag = "",
    output: Annotated[
        str, Option("Write catalog.json and index.html to this folder.", "FOLDER", short="o", completes="folder")
    ] = "",
    format_: Format = "table",
) -> None:
    """List published images, or write a catalog page."""
    from sifmark.commands.registry.list import catalog

    catalog(registry, tag, output, settings, format_)
