"""The commands list, build, run, verify and clean: images from their recipes on."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import JSON, TABLE, Table, answer
from sifmark.commands.pipelines import folded, write_junit
from sifmark.core.console import counted, printable
from sifmark.core.environment import temporary_folder
from sifmark.core.errors import UsageError
from sifmark.core.files import free_space, human_size
from sifmark.core.terminal import ask, detail, output, output_table, paint, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sifmark.builds.batch import BuildOutcome, PlannedBuild
    from sifmark.core.settings import Settings
    from sifmark.engines import Engine
    from sifmark.trust.stages import StageResult

    Verified = Mapping[str, Sequence[StageResult]]  # by the image's address

WORKLOADS = "workloads"
SETS = ("papers", "2026", "micro-benchmarks")  # of schemas/card-1.0.json


@cli.command("list", example="list cpu")
@cli.argument(
    "what", "A recipe, an image, a quoted glob, or 'workloads'. [default: recipes]", required=False, completes="recipe"
)
@cli.option(
    "--device", "With 'workloads': the highest throughput on devices with this in their name, by roofline.", "NAME"
)
@cli.option(
    "--set",
    "With 'workloads': those of the published studies, of 2026, or micro-benchmarks.",
    name="of_set",
    choices=SETS,
)
@cli.format_option
@cli.flag("--matrix", "Print a job per recipe that can be built here, as JSON for CI.")
@cli.engine_option
def show_list(
    what: str, settings: Settings, form: str = TABLE, device: str = "", of_set: str = "", matrix: bool = False
) -> None:
    """Show recipes, the images of one recipe, or the workloads."""
    from sifmark.engines import open_engine

    for option, value in {"--device": device, "--set": of_set}.items():
        if value and what != WORKLOADS:
            remedy = f"sifmark list {WORKLOADS} {option} {quote(value)}"
            raise UsageError(f"{option} is for workloads", remedy, code="invalid-option")
    engine = open_engine(settings)
    if matrix:
        _show_matrix(settings)
    elif device:
        _show_bounds(device, form, of_set)
    elif what == WORKLOADS:
        _show_workloads(form, of_set)
    elif what:
        _show_images(what, engine, settings, form)
    else:
        _show_recipes(engine, settings, form)


def _show_matrix(settings: Settings) -> None:
    """Print a job for each recipe that can be built here, as pipelines read them: variables by name."""
    from sifmark.builds.listing import buildable, recipe_rows

    jobs = [
        {"RECIPE": recipe["name"], "REDISTRIBUTABLE": str(recipe["redistributable"]).lower()}
        for recipe in recipe_rows()
        if buildable(recipe["name"], settings)["buildable"]
    ]
    output(json.dumps(jobs))


def _show_recipes(engine: Engine, settings: Settings, form: str) -> None:
    from sifmark.builds.listing import buildable, image_rows, recipe_rows, recipe_state, workload_rows
    from sifmark.recipes.names import images, workloads_of

    rows, document = recipe_rows(), None
    if form == JSON:
        recipes = [{**row, **buildable(row["name"], settings)} for row in rows]
        everything = image_rows(images(), engine, settings)
        document = {"recipes": recipes, "workloads": workload_rows(), "images": everything}
    states = [recipe_state(row["name"], engine, settings) for row in rows]
    cells = [
        [row["name"], row["title"], state["state"], human_size(state["size"]) if state["size"] else "", state["note"]]
        for row, state in zip(rows, states, strict=True)
    ]
    answer(form, document, Table(("recipe", "device and framework", "state", "size", "note"), cells))
    if form == TABLE:
        count = len(set().union(*(workloads_of(row["name"]) for row in rows)))
        status(f"{count} workloads: sifmark list workloads.  The images of a recipe: sifmark list cpu.")


def _show_workloads(form: str, of_set: str) -> None:
    from sifmark.builds.listing import workload_rows
    from sifmark.results.numbers import format_scaled

    rows, cells = workload_rows(of_set), []
    for row in rows:
        title = row["title"].partition(",")[0].partition(" over ")[0]
        operations = f"{format_scaled(row['flops'], 'FLOP')} per {row['unit'].removesuffix('s')}"
        cells.append([row["name"], title, row["set"], format_scaled(row["parameters"], ""), operations])
    answer(form, {"workloads": rows}, Table(("workload", "title", "set", "parameters", "operations"), cells))
    if form == TABLE:
        others = [f"{row['name']}: {row['tasks'][0]}" for row in rows if len(row["tasks"]) == 1]
        but = f", but {', '.join(others)}" if others else ""
        status(f"Each for training and inference{but}. One in full: sifmark list workloads --json")
        if of_set in ("", "papers"):
            status(
                "gpt2 to gpt2_xxxl have GPT-2's layers and 67 characters; GPT-2 itself (124 M parameters) is gpt_117m."
            )


def _show_bounds(device: str, form: str, of_set: str) -> None:
    from sifmark.builds.listing import devices_with_bounds, with_bounds, workload_rows
    from sifmark.results.numbers import format_quantity

    rows, cells = with_bounds(workload_rows(of_set), devices_with_bounds(device)), []
    for name, bound in [(row["name"], bound) for row in rows for bound in row["bounds"]]:
        where = bound["device"] + ("" if bound["part"] == "package" else f" ({bound['part']})")
        highest = format_quantity(bound["throughput"], bound["unit"])
        settings = (bound["task"], where, bound["precision"], bound["batch_size"])
        cells.append([name, *settings, highest, bound["limit"]])
    columns = ("workload", "task", "device", "precision", "batch size", "at most", "limit")
    answer(form, {"workloads": rows}, Table(columns, cells))
    if form == TABLE:
        without = [row["name"] for row in rows if not row["bounds"]]
        status(f"By peak operations and memory bandwidth (roofline). No bound: {', '.join(without)}.")


def _show_images(pattern: str, engine: Engine, settings: Settings, form: str) -> None:
    from sifmark.builds.listing import image_rows
    from sifmark.recipes.names import find_images

    rows = image_rows(find_images(pattern), engine, settings)
    cells = [[row["name"], row["state"], row["file"]] for row in rows]
    answer(form, {"images": rows}, Table(("image", "state", "file"), cells))
    if form == TABLE and (reasons := dict.fromkeys(row["reason"] for row in rows if row["reason"])):
        status("\n".join(reasons))


@cli.command("build", example="build cpu")
@cli.argument(
    "names",
    "Recipes (cpu), images (resnet50-cpu) or quoted globs ('*-cpu').",
    "NAME",
    required=False,
    nargs=-1,
    completes="image",
)
@cli.flag("--all", "Build every recipe that can be built here.", "everything")
@cli.bases_option
@cli.option("--compression", "Compression of the image file. [default: zstd]", choices=("zstd", "gzip", "lz4", "xz"))
@cli.flag("--force", "Build even if nothing changed.")
@cli.option("--jobs", "Builds at once. [default: what cores, memory and disk space allow]", "N", short="-j", least=1)
@cli.flag("--dry-run", "Show what would be built, and why.", "-n")
@cli.format_option
@cli.engine_option
def build(
    names: Sequence[str],
    settings: Settings,
    everything: bool = False,
    bases: str | None = None,
    compression: str | None = None,
    force: bool = False,
    jobs: int = 0,
    dry_run: bool = False,
    form: str = TABLE,
) -> None:
    """Build images that are missing or out of date."""
    from sifmark.builds import library
    from sifmark.builds.batch import BuildOptions
    from sifmark.engines import open_engine

    options = BuildOptions(bases, compression, force)
    options.apply(settings)  # bad values are reported before anything else
    engine = open_engine(settings)
    recipes = library.recipes_of(_patterns(names, everything))
    builds = library.plan_builds(recipes, options, engine, settings) if dry_run or len(recipes) > 1 else []
    if dry_run:
        answer(form, [each.document() for each in builds], _plan_table(builds))
        if form == TABLE:
            _show_totals(builds, settings)
        return
    if len(recipes) == 1:
        outcome, error = library.build_alone(recipes[0], options, engine, settings)
        if error is None or form == JSON:
            _answer_outcomes([outcome], engine, form)
        if error is not None:
            raise error
        return
    table = _plan_table(builds)
    output_table(*table.columns, rows=table.rows, stderr=True)  # the answer comes later
    _show_totals(builds, settings)
    outcomes = library.build_planned(builds, options, engine, settings, jobs)
    _answer_outcomes(outcomes, engine, form)
    library.require_built(outcomes)


def _patterns(names: Sequence[str], everything: bool) -> tuple[str, ...]:
    """Return the patterns that a command line names. Raises UsageError for none, or for names beside `--all`."""
    from sifmark.recipes.names import EVERYTHING

    if everything and names:
        cause = f"--all and {names[0]!r} were both given"
        raise UsageError(cause, "leave one of them out", code="invalid-option")
    if not everything and not names:
        remedy = "sifmark build cpu, sifmark build 'resnet50-*', or sifmark build --all"
        raise UsageError("which image?", remedy, code="argument-missing")
    return (EVERYTHING,) if everything else tuple(names)


def _plan_table(builds: Sequence[PlannedBuild]) -> Table:
    rows = []
    for build in builds:
        size, seconds = build.forecast.size, build.forecast.seconds
        needs = [human_size(size) if size else "", f"{seconds:.0f} s" if seconds else ""]
        about = [f"about {each}" if each else "unknown" for each in needs]
        needs = about if build.action.value == "build" else ["", ""]
        reason = build.reason.splitlines()[0]
        rows.append([build.recipe, build.action.value, reason, *needs, ", ".join(build.cached_stages)])
    return Table(("recipe", "to do", "why", "size", "time", "in the cache"), rows)


def _show_totals(builds: Sequence[PlannedBuild], settings: Settings) -> None:
    from sifmark.builds.batch import Action

    counts = Counter(build.action for build in builds)
    words = {Action.BROKEN: "broken", Action.SKIP: "skipped"}
    total = ", ".join(f"{counts[act]} {words.get(act, f'to {act.value}')}" for act in Action if counts[act])
    status(f"{counted(len(builds), 'recipe')}: {total}")
    for role, folder in {"cache": settings.cache, "image": settings.dist, "temporary": temporary_folder()}.items():
        status(f"  {role} folder {folder}: {human_size(free_space(folder))} free")


def _answer_outcomes(outcomes: Sequence[BuildOutcome], engine: Engine, form: str) -> None:
    columns = ("recipe", "state", "seconds", "size", "digest", "reused", "names")
    table = Table(columns, [_outcome_row(outcome) for outcome in outcomes])
    show = (lambda: _show_one(outcomes[0], engine)) if len(outcomes) == 1 else None
    answer(form, [outcome.document() for outcome in outcomes], table, show, summary="Built images")


def _show_one(outcome: BuildOutcome, engine: Engine) -> None:
    state = f"built in {outcome.seconds:.1f} s" if outcome.state.value == "built" else outcome.state
    address = engine.address(outcome.recipe)
    output(f"{address}: {state}, {human_size(outcome.size or 0)}, {counted(len(outcome.names), 'name')}")
    detail(f"  {', '.join(outcome.names)}")


def _outcome_row(outcome: BuildOutcome) -> list[str]:
    state = f"{outcome.state}: {outcome.reason.splitlines()[0]}" if outcome.reason else outcome.state
    size = human_size(outcome.size) if outcome.size else ""
    seconds, reused = f"{outcome.seconds:.1f}", ", ".join(outcome.reused)
    return [outcome.recipe, state, seconds, size, outcome.digest or "", reused, str(len(outcome.names))]


@cli.command("run", example="run resnet50-cpu -- --steps 20 --output results/")
@cli.argument("name", "An image, a recipe, or an image file; more of them may follow.", completes="image")
@cli.words_argument("image")
@cli.option("--repeat", "Runs of each: a number, or auto for as many as --within needs. [default: 1]", "N|auto")
@cli.option("--within", "With --repeat auto: half the 95 % interval of each mean. [default: 2%]", "WIDTH")
@cli.option("--most-repeats", "With --repeat auto: the limit. [default: 30]", "N", least=1)
@cli.option("--variant", "Further words for the image, as a variant of its own: '--threads 1'. Repeatable.", "WORDS",
            multiple=True)  # fmt: skip
@cli.flag("--interleave", "Let images and variants take turns, so that a drift of the machine affects all alike.")
@cli.option("--bind", "A path of the host that images see, besides those that their options name: SRC, SRC:DST or "
            "SRC:DST:rw; read-only by default. Repeatable.", "PATH", multiple=True)  # fmt: skip
@cli.wait_idle_option
@cli.option("--report", "Afterwards write a report of the results, as `report` does.", "FOLDER", name="report_folder")
@cli.flag("--print", "Only print the command, for a job script.", "printed")
@cli.flag("--require-signature", "Refuse an image without a trusted signature; --key implies it.")
@cli.key_option
@cli.plain_option
@cli.engine_option
def run(
    name: str,
    settings: Settings,
    arguments: Sequence[str] = (),
    repeat: str = "1",
    within: str | None = None,
    most_repeats: int | None = None,
    variant: Sequence[str] = (),
    interleave: bool = False,
    bind: Sequence[str] = (),
    wait_idle: str = "",
    report_folder: str = "",
    printed: bool = False,
    require_signature: bool = False,
    key: Sequence[str] = (),
    plain: bool = False,
) -> None:
    """Run images with the flags and bind mounts that they need."""
    from sifmark.commands.run import RunRequest, asked_runs, print_commands, start_images
    from sifmark.doctor.load import wait_seconds
    from sifmark.engines.binds import parse_binds
    from sifmark.engines.repeating import repeats_of

    repeats = repeats_of(repeat, within, most_repeats)
    signed, wait, binds = require_signature or bool(key), wait_seconds(wait_idle), parse_binds(bind)
    asked = asked_runs([name], variant, arguments, settings)
    request = RunRequest(settings, repeats, signed, plain, interleave, wait, binds, report_folder)
    if printed:
        print_commands(asked, request)
    else:
        start_images(asked, request)


@cli.command("verify", example="verify cpu")
@cli.argument("names", "Images, recipes, quoted globs, or image files.", "NAME", nargs=-1, completes="image")
@cli.option("--stages", "Only these, with commas: trust, structure, smoke, golden.", "STAGES")
@cli.option("--require", "Fail if one of these stages is skipped, with commas. [with CI set: trust]", "STAGES")
@cli.key_option
@cli.junit_option
@cli.format_option
@cli.engine_option
def verify(
    names: Iterable[str],
    settings: Settings,
    form: str = TABLE,
    stages: str = "",
    require: str = "",
    key: Sequence[str] = (),
    junit: str = "",
) -> None:
    """Check images: signature, contents and a short run."""
    from sifmark.trust.stages import TRUST, require_verified, select_stages, verify_images

    selected = select_stages(stages)
    required = {stage.name for stage in select_stages(require)} if require else set()
    if not require and os.environ.get("CI"):
        required = {TRUST.name} & {stage.name for stage in selected}
    results = verify_images(names, settings, selected, signed=bool(key), around=folded)
    documents = {address: [each.document() for each in found] for address, found in results.items()}
    answer(form, documents, _stage_table(results), lambda: _show_stages(results), summary="Verified images")
    if junit:
        write_junit(Path(junit), {address: [each.check for each in found] for address, found in results.items()})
    require_verified(results, required)


def _stage_table(results: Verified) -> Table:
    every = [(address, each) for address, stages in results.items() for each in stages]
    rows = [(address, *each.document().values()) for address, each in every]
    cells = [(address, stage, outcome, "; ".join(reasons)) for address, stage, outcome, reasons in rows]
    return Table(("image", "stage", "outcome", "reasons"), cells)


def _show_stages(results: Verified) -> None:
    for address, stages in results.items():
        output(address)
        for result in stages:
            outcome = result.check.status.value
            output(f"  {paint(f'{outcome:<8}', word=outcome)} {result.check.name}")
            for reason in result.reasons:
                output(f"           {printable(reason)}")
    counts = Counter(result.check.status.value for stages in results.values() for result in stages)
    output(", ".join(f"{counted(count, 'stage')} {state}" for state, count in counts.items()))


@cli.command("clean", example="clean --dry-run")
@cli.flag("--cache", "Also remove wheels and converted bases, which cost a download.")
@cli.flag("--dry-run", "Show what would be removed.", "-n")
@cli.flag("--yes", "Remove signed and pulled images without asking.", "confirmed")
@cli.format_option
@cli.engine_option
def clean(
    settings: Settings, cache: bool = False, dry_run: bool = False, confirmed: bool = False, form: str = TABLE
) -> None:
    """Remove built images, logs and build folders; results stay."""
    from sifmark.builds.clean import find_products, remove_products, remove_stages
    from sifmark.engines import open_engine

    engine = open_engine(settings)
    products = find_products(engine, settings)
    if dry_run:
        names = [name for product in products for name in product.names]
        shown = "\n".join(names) or "nothing to remove"
        answer(form, names, Table(("removed",), [(name,) for name in names]), lambda: output(shown))
        return
    # Signed and pulled images cannot be made again from a recipe alone.
    precious = [name for product in products if product.origin for name in product.names[:1]]
    if precious and not confirmed:
        _confirm(precious)
    removed = []
    for name in chain(remove_products(engine, settings), remove_stages(engine, settings) if cache else ()):
        removed.append(name)
        status(f"removed {name}")
    answer(form, removed, Table(("removed",), [(name,) for name in removed]), lambda: None)


def _confirm(names: list[str]) -> None:
    listed = "\n  ".join(names)
    if sys.stdin.isatty() and sys.stderr.isatty() and ask(f"Remove these, which were signed or pulled?\n  {listed}\n"):
        return
    cause = f"signed or pulled images would be removed:\n  {listed}"
    remedy = "keep copies, then: sifmark clean --yes"
    raise UsageError(cause, remedy, code="confirmation-missing")
