"""The commands that every user needs."""

from typing import Annotated

from sifmark.commands.definition import BASES, ENGINE, Argument, Format, JUnit, Keys, Option, Plain, Strings, command
from sifmark.core.settings import Settings

Results = Annotated[Strings, Argument("Result files, folders of them, or quoted globs.", "RESULTS", completes="file")]


@command("list", ENGINE, example="list cpu")
def list_(
    settings: Settings,
    what: Annotated[
        str, Argument("A recipe, an image, a quoted glob, or 'workloads'. [default: recipes]", completes="recipe")
    ] = "",
    device: Annotated[
        str,
        Option("With 'workloads': the highest throughput on devices with this in their name, by roofline.", "NAME"),
    ] = "",
    format_: Format = "table",
    matrix: Annotated[bool, Option("Print a job per recipe that can be built here, as JSON for CI.")] = False,
) -> None:
    """Show recipes, the images of one recipe, or the workloads."""
    from sifmark.commands.list import show_list, show_matrix

    show_matrix(settings) if matrix else show_list(what, settings, format_, device)


@command("build", ENGINE, example="build cpu")
def build(
    settings: Settings,
    names: Annotated[
        Strings, Argument("Recipes (cpu), images (resnet50-cpu) or quoted globs ('*-cpu').", "NAME", completes="image")
    ] = (),
    all_: Annotated[bool, Option("Build every recipe that can be built here.")] = False,
    bases: Annotated[str, BASES.option] = "",
    compression: Annotated[
        str, Option("Compression of the image file. [default: zstd]", choices=("zstd", "gzip", "lz4", "xz"))
    ] = "",
    force: Annotated[bool, Option("Build even if nothing changed.")] = False,
    jobs: Annotated[
        int, Option("Builds at once. [default: what cores, memory and disk space allow]", "N", short="j", least=1)
    ] = 0,
    dry_run: Annotated[bool, Option("Show what would be built, and why.", short="n")] = False,
    format_: Format = "table",
) -> None:
    """Build images that are missing or out of date."""
    from sifmark.build.batch import BuildOptions
    from sifmark.commands.build import build_images, patterns

    options = BuildOptions(bases or None, compression or None, force)
    build_images(patterns(names, all_), options, settings, jobs=jobs, dry_run=dry_run, form=format_)


@command("run", ENGINE, example="run resnet50-cpu -- --steps 20 --output results/")
def run(
    settings: Settings,
    name: Annotated[str, Argument("An image, a recipe, or an image file.", completes="image")],
    arguments: Annotated[Strings, Argument("Words for the image; put -- before them.", "[--] ARGUMENTS")] = (),
    print_: Annotated[bool, Option("Only print the command, for a job script.")] = False,
    require_signature: Annotated[
        bool, Option("Refuse an image without a trusted signature; --key implies it.")
    ] = False,
    key: Keys = (),
    plain: Plain = False,
) -> None:
    """Run an image with the flags and bind mounts that it needs."""
    from sifmark.commands.run import run_image

    run_image(name, arguments, settings, print_, require_signature or bool(key), plain)


@command("verify", ENGINE, example="verify cpu")
def verify(
    settings: Settings,
    names: Annotated[Strings, Argument("Images, recipes, quoted globs, or image files.", "NAME", completes="image")],
    stages: Annotated[str, Option("Only these, with commas: trust, structure, smoke, golden.", "STAGES")] = "",
    require: Annotated[
        str, Option("Fail if one of these stages is skipped, with commas. [with CI set: trust]", "STAGES")
    ] = "",
    key: Keys = (),
    junit: JUnit = "",
    format_: Format = "table",
) -> None:
    """Check images: signature, contents and a short run."""
    from sifmark.commands.verify import verify_images

    verify_images(names, settings, format_, stages, require, signed=bool(key), junit=junit)


@command("compare", example="compare results/ --baseline site=alpha")
def compare(
    settings: Settings,
    paths: Results,
    baseline: Annotated[
        str,
        Option("Other results, or those with this value, are the baselines.", "RESULTS|FIELD=VALUE", completes="file"),
    ] = "",
    against: Annotated[
        str, Option("A kept baseline, baseline:NAME; or published figures, published:NAME[/TABLE].", "KIND:NAME")
    ] = "",
    metrics: Annotated[str, Option("Metrics, with commas, or 'all'.", "METRICS")] = "",
    by: Annotated[str, Option("More fields that separate rows, with commas.", "FIELDS")] = "",
    allow: Annotated[
        Strings, Option("Compare results that differ in this field, although they should not. Repeatable.", "FIELD")
    ] = (),
    fail_below: Annotated[
        str, Option("Exit with 7 if the first metric is below this ratio to its baseline.", "RATIO")
    ] = "",
    fail_above: Annotated[str, Option("Exit with 7 if it is above; for metrics where less is better.", "RATIO")] = "",
    require_signature: Annotated[bool, Option("Leave out results that no trusted key has signed.")] = False,
    key: Keys = (),  # noqa: ARG001 - it is in the settings
    format_: Format = "table",
) -> None:
    """Compare results, and refuse what is not comparable."""
    from sifmark.commands.compare import PUBLISHED, CompareOptions
    from sifmark.commands.compare import compare as compare_results

    trusted = settings.keys if require_signature else None
    options = CompareOptions(
        tuple(paths),
        baseline,
        metrics,
        by,
        tuple(allow),
        format_,
        fail_below,
        fail_above,
        trusted_keys=trusted,
        reference=against,
        baselines=settings.baselines,
    )
    if against.startswith(PUBLISHED):
        from sifmark.commands.published.compare import compare_published

        compare_published(options)
    else:
        compare_results(options)


@command("doctor", ENGINE, example="doctor")
def doctor(
    settings: Settings,
    image: Annotated[
        str, Option("Run this image for some seconds and check what it sees.", "NAME", completes="image")
    ] = "",
    format_: Format = "table",
) -> None:
    """Check this host, or what an image sees of it."""
    from sifmark.commands.doctor import run_doctor

    run_doctor(image, settings, format_)


@command("clean", ENGINE, example="clean --dry-run")
def clean(
    settings: Settings,
    cache: Annotated[bool, Option("Also remove wheels and converted bases, which cost a download.")] = False,
    dry_run: Annotated[bool, Option("Show what would be removed.", short="n")] = False,
    yes: Annotated[bool, Option("Remove signed and pulled images without asking.")] = False,
    format_: Format = "table",
) -> None:
    """Remove built images, logs and build folders; results stay."""
    from sifmark.commands.clean import clean as clean_up

    clean_up(settings, cache=cache, dry_run=dry_run, confirmed=yes, form=format_)
