"""The verbs. Each is a docstring and one call into sifmark/; `sifmark VERB` is the same without a clone."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from sifmark.commands.arguments import Command, NameOrAll, parse_int
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError
from sifmark.core.process import unwind_on_signals
from sifmark.recipes.names import EVERYTHING

_RESULTS = "a result file, a folder of them, or a quoted glob"
_ENGINE = "'apptainer' (default) or 'docker'"
_BASES = "'pinned' (default) or 'stand-in', for machines that reach no public registry"


def verb(**options: Any) -> Callable[[Callable[..., None]], Any]:
    """An invoke task whose failures are told as cause and remedy, with our exit codes."""

    def wrap(body: Callable[..., None]) -> Any:
        @functools.wraps(body)
        def guarded(*args: Any, **kwargs: Any) -> None:
            unwind_on_signals()
            try:
                body(*args, **kwargs)
            except SifmarkError as error:
                told = "\n".join(map(printable, str(error).splitlines()))
                raise Exit(f"error: {told}", code=error.exit_code) from error
            except BrokenPipeError:  # whoever read our answer has seen enough
                raise Exit(code=141) from None
            except OSError as error:
                raise Exit(
                    f"error: {error}\n  remedy: check that path's rights and its disk's space", code=1
                ) from error
            except KeyboardInterrupt:
                raise Exit("interrupted; nothing half done was left under a final name", code=130) from None

        return task(guarded, **{"klass": Command, **options})

    return wrap


@verb(
    name="list",
    help={
        "json": "for programs",
        "matrix": "for pipelines: a job with RECIPE and REDISTRIBUTABLE for each recipe that can be built here",
        "engine": _ENGINE,
    },
)
def list_(c: Context, json: bool = False, matrix: bool = False, engine: str = "") -> None:
    """Show recipes, workloads, and which images are built, stale or missing."""
    from sifmark.commands.list import show_list, show_matrix
    from sifmark.core.settings import apply_options

    apply_options(engine=engine)
    show_matrix() if matrix else show_list(as_json=json)


@verb(
    klass=NameOrAll,
    help={
        "name": "an image (resnet50-cpu), a quoted glob ('*-cpu') or a recipe (cpu)",
        "all": "every recipe that can be built here",
        "engine": _ENGINE,
        "bases": _BASES,
        "compression": "zstd (default), gzip, lz4 or xz",
        "force": "build even when nothing changed",
        "jobs": "builds at once; default: as many as cores, memory and free space carry",
        "dry-run": "only say what would be built, and why",
        "json": "for programs: what became of each recipe",
    },
)
def build(
    c: Context,
    name: str,
    all: bool = False,  # noqa: A002
    engine: str = "",
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
    from sifmark.core.settings import apply_options

    apply_options(engine=engine)
    options = BuildOptions(bases or None, compression or None, force)
    build_images(name, options, jobs=parse_int("--jobs", jobs, 1) if jobs else 0, dry_run=dry_run, as_json=json)


@verb(help={"name": "an image or a recipe", "format": "'def' for Apptainer or 'dockerfile'", "bases": _BASES})
def render(c: Context, name: str, format: str = "def", bases: str = "") -> None:  # noqa: A002
    """Print the build file of an image, and assemble the layers it names, for plain `apptainer build`."""
    from sifmark.build.image import render as render_image
    from sifmark.core.settings import settings

    sys.stdout.write(render_image(name, format, settings(), bases or None))


@verb(
    help={
        "name": "an image or its file; everything after -- goes to the image",
        "engine": _ENGINE,
        "print": "only print the command, for a job's script",
        "require-signature": "start it only if a key of the settings has signed it",
        "key": "start it only if this key has signed it: as of verify; repeatable",
    },
    iterable=["key"],
)
def run(
    c: Context,
    name: str,
    engine: str = "",
    print: bool = False,  # noqa: A002
    require_signature: bool = False,
    key: Sequence[str] | None = None,
) -> None:
    """Run an image with the flags that its device and this host need: inv run resnet50-cpu -- --steps 20."""
    from sifmark.commands.run import run_image
    from sifmark.core.settings import join_paths, load_settings

    settings = load_settings(engine=engine, keys=join_paths(key))
    run_image(name, sys.argv, settings, printed=print, signed=require_signature or bool(key))


@verb(
    iterable=["key"],
    help={
        "name": "an image, a quoted glob, or a file",
        "key": "a public key in PEM form, or the fingerprint of a PGP key, whose signature is to hold; repeatable",
        "stages": "only these, with commas: trust,structure,smoke,golden; default: all",
        "engine": _ENGINE,
        "json": "for programs",
    },
)
def verify(
    c: Context, name: str, key: Sequence[str] | None = None, stages: str = "", engine: str = "", json: bool = False
) -> None:
    """Check an image in stages: trust, structure, smoke, and in a clone golden."""
    from sifmark.commands.verify import verify_images
    from sifmark.core.settings import join_paths, load_settings

    settings = load_settings(engine=engine, keys=join_paths(key))
    verify_images(name, settings, as_json=json, stages=stages, signed=bool(key))


@verb(
    help={
        "name": "an image or a recipe",
        "key": "a private key in PEM form, without a passphrase",
        "pgp": "or the number of a key in Apptainer's keyring: apptainer key list --secret",
        "engine": f"{_ENGINE}; an image of Docker is signed with cosign, in the registry that it was pushed to",
        "registry": "as of push, for an image of Docker",
        "tag": "as of push, for an image of Docker",
    }
)
def sign(
    c: Context, name: str, key: str = "", pgp: str = "", engine: str = "", registry: str = "", tag: str = ""
) -> None:
    """Sign an image, all of it: file system, labels, SBOM and provenance. Its identity stays."""
    from sifmark.commands.sign import sign as sign_image
    from sifmark.core.settings import load_settings

    sign_image(name, key, pgp, load_settings(engine=engine), registry, tag)


@verb(
    help={
        "name": "an image or a recipe that is built",
        "registry": "host and path, such as registry.site.example/sifmark; default: registry in sifmark.toml",
        "tag": "default: the version; an image of Docker has -docker behind it",
        "engine": _ENGINE,
        "json": "for programs: digests and names",
    }
)
def push(c: Context, name: str, registry: str = "", tag: str = "", engine: str = "", json: bool = False) -> None:
    """Put an image into a registry, under each of its names; its bytes go there once."""
    from sifmark.commands.push import push as push_image
    from sifmark.core.settings import load_settings

    push_image(name, registry, tag, load_settings(engine=engine), as_json=json)


@verb(
    iterable=["key"],
    help={
        "name": "an image or a recipe",
        "registry": "as of push",
        "tag": "as of push",
        "key": "a trusted key, as of verify: what it has not signed is refused",
        "engine": _ENGINE,
        "json": "for programs",
    },
)
def pull(
    c: Context,
    name: str,
    registry: str = "",
    tag: str = "",
    key: Sequence[str] | None = None,
    engine: str = "",
    json: bool = False,
) -> None:
    """Fetch an image from a registry; it takes its names when digest, labels and signature hold."""
    from sifmark.commands.pull import pull as pull_image
    from sifmark.core.settings import join_paths, load_settings

    settings = load_settings(engine=engine, keys=join_paths(key))
    pull_image(name, registry, tag, settings, as_json=json, signed=bool(key))


@verb(
    iterable=["name"],
    help={
        "target": "a folder, as /PATH or ./PATH, or HOST/PATH of another registry",
        "name": "an image, a recipe or a quoted glob; repeatable; default: all that are there",
        "registry": "where they come from, as of push; may be a folder too",
        "tag": "as of push",
    },
)
def mirror(c: Context, target: str, name: Sequence[str] | None = None, registry: str = "", tag: str = "") -> None:
    """Copy published images to another registry, or to a folder for a site without a network: pull from it there."""
    from sifmark.commands.mirror import mirror as copy
    from sifmark.core.settings import load_settings

    copy(target, name or (EVERYTHING,), registry, tag, load_settings())


@verb(
    help={
        "registry": "as of push; may be a folder",
        "tag": "as of push",
        "output": "a folder for catalog.json and a page, index.html; default: a table here",
        "engine": _ENGINE,
        "json": "for programs",
    }
)
def catalog(
    c: Context, registry: str = "", tag: str = "", output: str = "", engine: str = "", json: bool = False
) -> None:
    """Say which images a registry or a folder has."""
    from sifmark.commands.catalog import catalog as show_catalog
    from sifmark.core.settings import load_settings

    show_catalog(registry, tag, output, load_settings(engine=engine), as_json=json)


@verb(
    help={
        "name": "an image, its file, or a CycloneDX document, FILE.json; everything after -- goes to the scanner",
        "scanner": "grype, osv-scanner or trivy; default: the first of these on PATH",
    }
)
def audit(c: Context, name: str, scanner: str = "") -> None:
    """Look for known vulnerabilities in an image's packages with an installed scanner; fail if there are any."""
    from sifmark.commands.audit import audit as scan

    scan(name, scanner, sys.argv)


@verb(
    help={
        "path": _RESULTS,
        "image": "the image that ran, by name or file; unless it is named, the one of the recipe that is here",
        "key": "as of verify",
        "engine": _ENGINE,
        "json": "for programs",
    },
    iterable=["key"],
)
def trace(
    c: Context, path: str, image: str = "", key: Sequence[str] | None = None, engine: str = "", json: bool = False
) -> None:
    """Lead from a result back to image, packages, recipe and commit, and say what of that is proven."""
    from sifmark.commands.trace import trace_results
    from sifmark.core.settings import join_paths, load_settings

    trace_results(path, image, load_settings(engine=engine, keys=join_paths(key)), as_json=json)


@verb(help={"path": _RESULTS, "quiet": "name only files that are not valid"})
def validate(c: Context, path: str, quiet: bool = False) -> None:
    """Check results against the schema they name."""
    from sifmark.commands.validate import validate_results

    validate_results(path, quiet=quiet)


@verb(help={"path": _RESULTS})
def show(c: Context, path: str) -> None:
    """Print a readable summary of results."""
    from sifmark.commands.validate import show_results

    show_results(path)


@verb(
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
    c: Context,
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
    from sifmark.commands.compare import compare_results

    compare_results(path, against, baseline, metrics, by, allow or (), format, fail_below, fail_above)


@verb(
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
def prepare_data(
    c: Context,
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
    from sifmark.commands.prepare_data import prepare_data as pack

    pack(source, target, format, samples_per_file, seed, strict, tokenizer, length)


@verb(
    help={
        "image": "an image, a recipe or a file: a run of seconds in it tells of device, driver, meter and tenants",
        "engine": _ENGINE,
        "json": "for programs",
    }
)
def doctor(c: Context, image: str = "", engine: str = "", json: bool = False) -> None:
    """Say what works on this host, or what an image sees of it, and what to do about the rest."""
    from sifmark.commands.doctor import run_doctor
    from sifmark.core.settings import load_settings

    run_doctor(image, load_settings(engine=engine), as_json=json)


@verb(
    help={
        "name": "a recipe",
        "python": "minor version of Python; default: that of the recipe's base",
        "platform": "x86_64 or aarch64; default: this machine's",
    }
)
def lock(c: Context, name: str, python: str = "", platform: str = "") -> None:
    """Resolve a recipe's wheels for a Python and a platform, and write their lock, with hashes."""
    from sifmark.layers.wheels import write_lock

    write_lock(name, python or None, platform or None)


@verb(
    iterable=["name"],
    help={
        "name": "a recipe; repeatable; default: all",
        "check": "only look, which is the default",
        "update": "write what the registries say into the recipes, all or nothing",
        "json": "for programs",
    },
)
def pins(
    c: Context, name: Sequence[str] | None = None, check: bool = False, update: bool = False, json: bool = False
) -> None:
    """Hold the digests of the bases against what their tags stand for in the registries."""
    from sifmark.commands.pins import pins as hold

    if check and update:
        raise Exit("error: --check and --update: choose one", code=2)
    hold(update, name or (), as_json=json)


@verb(
    help={"name": "an image or a recipe", "force": "even where the SIF that is there is up to date"},
)
def convert(c: Context, name: str, force: bool = False) -> None:
    """Turn a Docker image that was built here into a SIF, with its labels and provenance."""
    from sifmark.commands.convert import convert as convert_image

    convert_image(name, force=force)


@verb(help={"name": "an image or a recipe that is built", "engine": _ENGINE, "json": "for programs"})
def reproduce(c: Context, name: str, engine: str = "", json: bool = False) -> None:
    """Build an image again with nothing that earlier builds left, and show the first difference, if any."""
    from sifmark.commands.reproduce import reproduce as build_again
    from sifmark.core.settings import apply_options

    apply_options(engine=engine)
    build_again(name, as_json=json)


@verb(
    iterable=["name"],
    help={
        "folder": "where bases and wheels go; what is there already is kept",
        "name": "a recipe; repeatable; default: all that can be built",
        "bases": _BASES,
    },
)
def fetch_sources(c: Context, folder: str, name: Sequence[str] | None = None, bases: str = "") -> None:
    """Collect what builds need in a folder, for hosts without a network: there set `sources` to it."""
    from sifmark.commands.fetch_sources import fetch_sources as fetch

    fetch(folder, name or (), bases or None)


@verb(help={"cache": "also wheels and converted bases, which cost a download", "engine": _ENGINE})
def clean(c: Context, cache: bool = False, engine: str = "") -> None:
    """Remove built images, logs and build folders; results stay."""
    from sifmark.commands.clean import clean as clean_up
    from sifmark.core.settings import apply_options

    apply_options(engine=engine)
    clean_up(cache=cache)


@verb()
def check(c: Context) -> None:
    """Lint, type-check and test what needs no container engine."""
    from sifmark.commands.check import run_checks

    run_checks()
