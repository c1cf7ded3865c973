"""The commands: each is a docstring and one call into sifmark/. `sifmark COMMAND` is the same without a clone."""

import sys
from collections.abc import Sequence

# invoke turns bytecode off, lest it lie beside this file: each command would compile again all that it imports.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from sifmark.commands.arguments import NameOrAll, parse_int
from sifmark.commands.command import BASES, ENGINE, JSON, KEY, CommandSet
from sifmark.core.settings import Settings
from sifmark.recipes.names import EVERYTHING

_RESULTS = "a result file, a folder of them, or a quoted glob"

commands = CommandSet()


# Bodies import what they call: a command does not wait for what only others need.


@commands.add(
    "list",
    ENGINE,
    JSON,
    help={"matrix": "for pipelines: a job with RECIPE and REDISTRIBUTABLE for each recipe that can be built here"},
)
def list_(settings: Settings, json: bool = False, matrix: bool = False) -> None:
    """Show recipes, workloads, and which images are built, stale or missing."""
    from sifmark.commands.list import show_list, show_matrix

    show_matrix(settings) if matrix else show_list(settings, as_json=json)


@commands.add(
    "build",
    ENGINE,
    JSON.described("for programs: what became of each recipe"),
    kind=NameOrAll,
    help={
        "name": "an image (resnet50-cpu), a quoted glob ('*-cpu') or a recipe (cpu)",
        "all": "every recipe that can be built here",
        "bases": BASES.help,
        "compression": "zstd (default), gzip, lz4 or xz",
        "force": "build even when nothing changed",
        "jobs": "builds at once; default: as many as cores, memory and free space carry",
        "dry-run": "only say what would be built, and why",
    },
)
def build(
    settings: Settings,
    name: str,
    all: bool = False,  # noqa: A002
    bases: str = "",
    compression: str = "",
    force: bool = False,
    jobs: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Build images; what is up to date is left alone. Several are planned first, and a failure stops only itself."""
    from sifmark.build.batch import BuildOptions
    from sifmark.commands.build import build_images

    options = BuildOptions(bases or None, compression or None, force)
    count = parse_int("--jobs", jobs, 1) if jobs else 0
    build_images(name, options, settings, jobs=count, dry_run=dry_run, as_json=json)


@commands.add(
    "run",
    ENGINE,
    KEY.described("start it only if this key has signed it: as of verify; repeatable"),
    help={
        "name": "an image or its file; everything after -- goes to the image",
        "print": "only print the command, for a job's script",
        "require-signature": "start it only if a key of the settings has signed it",
    },
)
def run(
    settings: Settings,
    name: str,
    print: bool = False,  # noqa: A002
    require_signature: bool = False,
    key: Sequence[str] | None = None,
) -> None:
    """Run an image with the flags that its device and this host need: inv run resnet50-cpu -- --steps 20."""
    from sifmark.commands.run import run_image

    run_image(name, sys.argv, settings, printed=print, signed=require_signature or bool(key))


@commands.add(
    "verify",
    ENGINE,
    JSON,
    KEY.described("a public key in PEM form, or the fingerprint of a PGP key, whose signature is to hold; repeatable"),
    help={
        "name": "an image, a quoted glob, or a file",
        "stages": "only these, with commas: trust,structure,smoke,golden; default: all",
    },
)
def verify(
    settings: Settings, name: str, key: Sequence[str] | None = None, stages: str = "", json: bool = False
) -> None:
    """Check an image in stages: trust, structure, smoke, and in a clone golden."""
    from sifmark.commands.verify import verify_images

    verify_images(name, settings, as_json=json, stages=stages, signed=bool(key))


@commands.add(
    "compare",
    iterable=["allow"],
    help={
        "path": _RESULTS,
        "against": "results to compare with, likewise; they are the baselines",
        "baseline": "or FIELD=VALUE: the lines that are one, for example accelerator.name=A100",
        "metrics": "by name, with commas; phases.compile, epochs.2 and the like too; or 'all'",
        "by": "fields that tell results apart beside the usual, for example host.hostname.value",
        "allow": "a field in which results may differ although they do not compare then; repeatable",
        "format": "table (default), json, csv or markdown",
        "fail-below": "exit with 7 where the first metric is below this ratio to its baseline; for what is better "
        "when it is more",
        "fail-above": "the same for what is better when it is less, as latency_p99: where it is above",
    },
)
def compare(
    path: str,
    against: str = "",
    baseline: str = "",
    metrics: str = "",
    by: str = "",
    allow: Sequence[str] | None = None,
    format: str = "table",  # noqa: A002
    fail_below: str = "",
    fail_above: str = "",
) -> None:
    """Compare results in groups of one question, or refuse and name the field that keeps them apart."""
    from sifmark.commands.compare import CompareOptions
    from sifmark.commands.compare import compare as compare_results

    options = CompareOptions(path, against, baseline, metrics, by, tuple(allow or ()), format, fail_below, fail_above)
    compare_results(options)


@commands.add(
    "doctor",
    ENGINE,
    JSON,
    help={"image": "an image, a recipe or a file: a run of seconds in it tells of device, driver, meter and tenants"},
)
def doctor(settings: Settings, image: str = "", json: bool = False) -> None:
    """Say what works on this host, or what an image sees of it, and what to do about the rest."""
    from sifmark.commands.doctor import run_doctor

    run_doctor(image, settings, as_json=json)


@commands.add("clean", ENGINE, help={"cache": "also wheels and converted bases, which cost a download"})
def clean(settings: Settings, cache: bool = False) -> None:
    """Remove built images, logs and build folders; results stay."""
    from sifmark.commands.clean import clean as clean_up

    clean_up(settings, cache=cache)


@commands.add(
    "image.render",
    BASES,
    formerly="render",
    help={"name": "an image or a recipe", "format": "'def' for Apptainer or 'dockerfile'"},
)
def render(settings: Settings, name: str, format: str = "def") -> None:  # noqa: A002
    """Print the build file of an image, and assemble the layers it names, for plain `apptainer build`."""
    from sifmark.commands.image.render import render as render_image

    render_image(name, format, settings)


@commands.add(
    "image.sign",
    ENGINE.described(f"{ENGINE.help}; an image of Docker is signed with cosign, in the registry that it was pushed to"),
    formerly="sign",
    help={
        "name": "an image or a recipe",
        "key": "a private key in PEM form, without a passphrase",
        "pgp": "or the number of a key in Apptainer's keyring: apptainer key list --secret",
        "registry": "as of push, for an image of Docker",
        "tag": "as of push, for an image of Docker",
    },
)
def sign(settings: Settings, name: str, key: str = "", pgp: str = "", registry: str = "", tag: str = "") -> None:
    """Sign an image, all of it: file system, labels, SBOM and provenance. Its identity stays."""
    from sifmark.commands.image.sign import sign as sign_image

    sign_image(name, key, pgp, settings, registry, tag)


@commands.add(
    "image.reproduce", ENGINE, JSON, formerly="reproduce", help={"name": "an image or a recipe that is built"}
)
def reproduce(settings: Settings, name: str, json: bool = False) -> None:
    """Build an image again with nothing that earlier builds left, and show the first difference, if any."""
    from sifmark.commands.image.reproduce import reproduce as build_again

    build_again(name, settings, as_json=json)


@commands.add(
    "image.to-sif",
    formerly="convert",
    help={"name": "an image or a recipe", "force": "even where the SIF that is there is up to date"},
)
def to_sif(settings: Settings, name: str, force: bool = False) -> None:
    """Turn a Docker image that was built here into a SIF, with its labels and provenance."""
    from sifmark.commands.image.to_sif import to_sif as convert

    convert(name, settings, force=force)


@commands.add(
    "image.audit",
    formerly="audit",
    help={
        "name": "an image, its file, or a CycloneDX document, FILE.json; everything after -- goes to the scanner",
        "scanner": "grype, osv-scanner or trivy; default: the first of these on PATH",
    },
)
def audit(settings: Settings, name: str, scanner: str = "") -> None:
    """Look for known vulnerabilities in an image's packages with an installed scanner; fail if there are any."""
    from sifmark.commands.image.audit import audit as scan

    scan(name, settings, scanner, sys.argv)


@commands.add(
    "registry.push",
    ENGINE,
    JSON.described("for programs: digests and names"),
    formerly="push",
    help={
        "name": "an image or a recipe that is built",
        "registry": "host and path, such as registry.site.example/sifmark; default: registry in sifmark.toml",
        "tag": "default: the version; an image of Docker has -docker behind it",
    },
)
def push(settings: Settings, name: str, registry: str = "", tag: str = "", json: bool = False) -> None:
    """Put an image into a registry, under each of its names; its bytes go there once."""
    from sifmark.commands.registry.push import push as push_image

    push_image(name, registry, tag, settings, as_json=json)


@commands.add(
    "registry.pull",
    KEY.described("a trusted key, as of verify: what it has not signed is refused"),
    ENGINE,
    JSON,
    formerly="pull",
    help={"name": "an image or a recipe", "registry": "as of push", "tag": "as of push"},
)
def pull(
    settings: Settings,
    name: str,
    registry: str = "",
    tag: str = "",
    key: Sequence[str] | None = None,
    json: bool = False,
) -> None:
    """Fetch an image from a registry; it takes its names when digest, labels and signature hold."""
    from sifmark.commands.registry.pull import pull as pull_image

    pull_image(name, registry, tag, settings, as_json=json, signed=bool(key))


@commands.add(
    "registry.mirror",
    formerly="mirror",
    iterable=["name"],
    help={
        "target": "a folder, as /PATH or ./PATH, or HOST/PATH of another registry",
        "name": "an image, a recipe or a quoted glob; repeatable; default: all that are there",
        "registry": "where they come from, as of push; may be a folder too",
        "tag": "as of push",
    },
)
def mirror(
    settings: Settings, target: str, name: Sequence[str] | None = None, registry: str = "", tag: str = ""
) -> None:
    """Copy published images to another registry, or to a folder for a site without a network: pull from it there."""
    from sifmark.commands.registry.mirror import mirror as copy

    copy(target, name or (EVERYTHING,), registry, tag, settings)


@commands.add(
    "registry.list",
    ENGINE,
    JSON,
    formerly="catalog",
    help={
        "registry": "as of push; may be a folder",
        "tag": "as of push",
        "output": "a folder for catalog.json and a page, index.html; default: a table here",
    },
)
def list_registry(settings: Settings, registry: str = "", tag: str = "", output: str = "", json: bool = False) -> None:
    """Say which images a registry or a folder has."""
    from sifmark.commands.registry.list import catalog

    catalog(registry, tag, output, settings, as_json=json)


@commands.add(
    "results.validate", formerly="validate", help={"path": _RESULTS, "quiet": "name only files that are not valid"}
)
def validate(path: str, quiet: bool = False) -> None:
    """Check results against the schema they name."""
    from sifmark.commands.results.validate import validate_results

    validate_results(path, quiet=quiet)


@commands.add("results.show", formerly="show", help={"path": _RESULTS})
def show(path: str) -> None:
    """Print a readable summary of results."""
    from sifmark.commands.results.show import show_results

    show_results(path)


@commands.add(
    "results.trace",
    KEY,
    ENGINE,
    JSON,
    formerly="trace",
    help={
        "path": _RESULTS,
        "image": "the image that ran, by name or file; unless it is named, the one of the recipe that is here",
    },
)
def trace(settings: Settings, path: str, image: str = "", json: bool = False) -> None:
    """Lead from a result back to image, packages, recipe and commit, and say what of that is proven."""
    from sifmark.commands.results.trace import trace_results

    trace_results(path, image, settings, as_json=json)


@commands.add(
    "recipe.lock",
    formerly="lock",
    help={
        "name": "a recipe",
        "python": "minor version of Python; default: that of the recipe's base",
        "platform": "x86_64 or aarch64; default: this machine's",
    },
)
def lock(settings: Settings, name: str, python: str = "", platform: str = "") -> None:
    """Resolve a recipe's wheels for a Python and a platform, and write their lock, with hashes."""
    from sifmark.commands.recipe.lock import lock as write_lock

    write_lock(name, settings, python, platform)


@commands.add(
    "recipe.pin",
    JSON,
    formerly="pins",
    iterable=["name"],
    help={
        "name": "a recipe; repeatable; default: all",
        "check": "only look, which is the default",
        "update": "write what the registries say into the recipes, all or nothing",
    },
)
def pin(
    settings: Settings,
    name: Sequence[str] | None = None,
    check: bool = False,
    update: bool = False,
    json: bool = False,
) -> None:
    """Hold the digests of the bases against what their tags stand for in the registries."""
    from sifmark.commands.recipe.pin import pin as check_or_update

    check_or_update(name or (), settings, check=check, update=update, as_json=json)


@commands.add(
    "recipe.fetch",
    BASES,
    formerly="fetch-sources",
    iterable=["name"],
    help={
        "folder": "where bases and wheels go; what is there already is kept",
        "name": "a recipe; repeatable; default: all that can be built",
    },
)
def fetch(settings: Settings, folder: str, name: Sequence[str] | None = None) -> None:
    """Collect what builds need in a folder, for hosts without a network: there set `sources` to it."""
    from sifmark.commands.recipe.fetch import fetch as fetch_sources

    fetch_sources(folder, name or (), settings)


@commands.add(
    "data.prepare",
    formerly="prepare-data",
    help={
        "source": "class folders with JPEG and PNG files, idx files; *.txt or *.jsonl; SQuAD v1.1 as it comes; "
        "speech as LJSpeech has it",
        "target": "the folder to fill; where an earlier run was stopped, it goes on",
        "format": "images: 'shards' (default), tar files for PyTorch, or 'records', TFRecord files for TensorFlow; "
        "text: 'tokens'; questions and answers: 'passages'; metadata.csv and wavs/*.wav: 'speech'",
        "samples-per-file": "images or recordings (default: 1000), lines of text (1000000) or questions (100000) "
        "for each file",
        "seed": "of the order of images and recordings; default: 0",
        "strict": "refuse what is damaged in place of skipping it",
        "tokenizer": "of text: vocab.txt (WordPiece), a folder with vocab.json and merges.txt (byte pairs), "
        "tokenizer.json, or characters.json of prepared text; default: each character is a token",
        "length": "tokens of a row of passages; default: 384",
    },
)
def prepare(
    source: str,
    target: str,
    format: str = "shards",  # noqa: A002
    samples_per_file: str = "",
    seed: str = "",
    strict: bool = False,
    tokenizer: str = "",
    length: str = "",
) -> None:
    """Make large files for --data of an image: of images, text or speech, with a manifest that spares counting."""
    from sifmark.commands.data.prepare import PrepareOptions, prepare_data

    options = PrepareOptions(format, samples_per_file, seed, tokenizer, length)
    prepare_data(source, target, options, strict=strict)


@commands.add("dev.check", formerly="check")
def check() -> None:
    """Lint, type-check and test what needs no container engine."""
    from sifmark.commands.dev.check import run_checks

    run_checks()


@commands.add("dev.golden")
def golden() -> None:
    """Write the generated texts again: golden files of recipes, the schemas' pages, the page of error codes."""
    from sifmark.commands.dev.golden import write_texts

    write_texts()


namespace = commands.namespace()
