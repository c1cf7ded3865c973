"""Commands for images in registries and folders: push, publish, pull, mirror, list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, answer_record
from sifmark.commands.image import signing_key
from sifmark.commands.pipelines import folded, write_junit
from sifmark.core.console import counted, printable
from sifmark.core.errors import UsageError
from sifmark.core.terminal import detail, output, paint, status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.engines import Engine
    from sifmark.publish.publication import FinishedStep, Publication
    from sifmark.publish.reports import PullReport

catalog_option = cli.output_option("Write catalog.json and index.html to this folder.", "FOLDER", "folder")


@cli.command("registry.push", example="registry.push cpu")
@cli.image_argument
@cli.registry_option
@cli.tag_option
@cli.format_option
@cli.engine_option
def push(name: str, settings: Settings, registry: str = "", tag: str = "", form: str = TABLE) -> None:
    """Push an image and its names to a registry."""
    from sifmark.engines import open_engine
    from sifmark.publish.publisher import publisher_of

    engine = open_engine(settings)
    report = publisher_of(engine).push(name, registry, tag, engine, settings)
    answer_record(form, report.document(), lambda: output(report.reference))
    status(f"  {report.summary}")
    detail(f"  {', '.join(report.names)}")


@cli.command("registry.publish", example="registry.publish cpu --key site.pem")
@cli.image_argument
@cli.private_key_option
@cli.pgp_option
@cli.option(
    "--trusted-key", "Check the new signature with this public key. Repeatable.", "KEY", multiple=True, setting="keys"
)
@cli.registry_option
@cli.tag_option
@catalog_option
@cli.junit_option
@cli.format_option
@cli.engine_option
@cli.bases_option
def publish(
    name: str,
    settings: Settings,
    key: str = "",
    pgp: str = "",
    registry: str = "",
    tag: str = "",
    folder: str = "",
    junit: str = "",
    form: str = TABLE,
) -> None:
    """Build, verify, sign and push an image, with one summary.

    What is up to date is not built again. A step that fails ends the work. The SBOMs and the provenance are in the
    image; the registry's catalog is written if --output names a folder.
    """
    from sifmark.publish.publication import publication_of

    signer = signing_key(key, pgp) if key or pgp else None
    show_publication(publication_of(name, registry, tag, signer, folder, settings), form, junit)


def show_publication(publication: Publication, form: str, junit: str = "") -> None:
    """Publish an image, print what each step did, and then raise the error of the step that failed."""
    from sifmark.publish.publication import carry_out

    steps = carry_out(publication.steps(), folded)
    document = {"recipe": publication.recipe, "steps": [step.document() for step in steps]}
    answer(form, document, _step_table(steps), lambda: _show_steps(steps), summary=f"Published: {publication.recipe}")
    if junit:
        write_junit(Path(junit), {f"publish {publication.recipe}": [step.check for step in steps]})
    for step in steps:
        if step.error is not None:
            raise step.error


def _step_table(steps: Sequence[FinishedStep]) -> Table:
    rows = [(each.check.name, each.check.status.value, f"{each.seconds:.1f}", each.check.detail) for each in steps]
    return Table(("step", "outcome", "seconds", "detail"), rows)


def _show_steps(steps: Sequence[FinishedStep]) -> None:
    for each in steps:
        outcome = each.check.status.value
        first = each.check.detail.partition("\n")[0]
        state = paint(f"{outcome:<8}", word=outcome)
        output(f"{state} {each.check.name:<10} {each.seconds:6.1f} s  {printable(first)}")


@cli.command("registry.pull", example="registry.pull cpu --key site.pub")
@cli.image_argument
@cli.registry_option
@cli.tag_option
@cli.key_option
@cli.option("--modulefile", "Also write module files below this folder: for Lmod and Environment Modules.", "FOLDER")
@cli.format_option
@cli.engine_option
def pull(
    name: str,
    settings: Settings,
    registry: str = "",
    tag: str = "",
    key: Sequence[str] = (),
    modulefile: str = "",
    form: str = TABLE,
) -> None:
    """Pull an image after checking its digest and signature."""
    from sifmark.engines import DOCKER, open_engine
    from sifmark.publish.publisher import publisher_of
    from sifmark.publish.stores import must_be_signed

    engine = open_engine(settings)
    if modulefile and engine.name == DOCKER:
        cause = "Docker's images are no files, which modules could name"
        raise UsageError(cause, "leave out --modulefile, or --engine docker", code="invalid-option")
    required = must_be_signed(bool(key), settings)
    report = publisher_of(engine).pull(name, registry, tag, engine, settings, required)
    signature = f"signed by {report.signer}" if report.signer else "signature not checked: no key is trusted here"
    text = f"{report.address}: {report.identity}, {signature}, {counted(len(report.names), 'name')}"
    written = _write_modulefiles(report, engine, modulefile) if modulefile else []
    document = {**report.document(), **({"modulefiles": written} if modulefile else {})}
    answer_record(form, document, lambda: output("\n".join([text, *written])))
    if form == TABLE:
        detail(f"  {', '.join(report.names)}")


def _write_modulefiles(report: PullReport, engine: Engine, folder: str) -> list[str]:
    """Write the module files of an image that was pulled, and return their paths."""
    from sifmark.publish.modulefiles import write_modulefiles

    labels = engine.inspect(report.address).labels
    return [str(path) for path in write_modulefiles(report, labels, Path(folder))]


@cli.command("registry.mirror", example="registry.mirror ./folder --name cpu")
@cli.argument("target", "A folder (/PATH or ./PATH) or HOST/PATH of a registry.", completes="folder")
@cli.option(
    "--name", "A recipe, an image or a quoted glob. Repeatable. [default: all]", multiple=True, completes="image"
)
@cli.registry_option
@cli.tag_option
@cli.format_option
def mirror(
    target: str, settings: Settings, name: Sequence[str] = (), registry: str = "", tag: str = "", form: str = TABLE
) -> None:
    """Copy published images to another registry or to a folder."""
    from sifmark.publish.mirror import MirroredImage, mirror_images
    from sifmark.publish.stores import open_store
    from sifmark.recipes.names import EVERYTHING

    images = []
    origin, copy = open_store(registry, tag, settings), open_store(target, tag, settings)
    for image in mirror_images(origin, copy, name or (EVERYTHING,), settings):
        images.append(image)
        if form == TABLE:
            output(f"{image.reference}{'' if image.sent else ' was there already'}")
    if form != TABLE:
        rows = [(image.reference, image.sent) for image in images]
        answer(form, [image._asdict() for image in images], Table(MirroredImage._fields, rows))


@cli.command("registry.list", example="registry.list")
@cli.registry_option
@cli.tag_option
@catalog_option
@cli.format_option
@cli.engine_option
def catalog(settings: Settings, registry: str = "", tag: str = "", folder: str = "", form: str = TABLE) -> None:
    """List published images, or write a catalog page."""
    from sifmark.engines import open_engine
    from sifmark.publish.catalog import COLUMNS, catalog_document, catalog_rows
    from sifmark.publish.publication import write_catalog
    from sifmark.publish.publisher import publisher_of

    publisher = publisher_of(open_engine(settings))
    document = catalog_document(publisher.listing(registry, tag, settings))
    if folder:
        output("\n".join(map(str, write_catalog(document, Path(folder), publisher, settings))))
    else:
        answer(form, document, Table(tuple(COLUMNS.values()), catalog_rows(document)))
