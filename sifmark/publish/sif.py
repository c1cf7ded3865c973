"""Publishing SIF files: pushed to registries and folders, pulled from them, and signed."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sifmark.builds import ledger
from sifmark.builds.records import lock_path, read_record, update_record, write_image_record
from sifmark.core.console import step
from sifmark.core.environment import platform_name
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError, UsageError
from sifmark.core.files import atomic_path, free_space, human_size
from sifmark.core.locks import exclusive_lock
from sifmark.core.permissions import require_unshared
from sifmark.core.settings import Settings
from sifmark.engines import BuiltImage, CheckFailed, Engine
from sifmark.engines.apptainer import signature
from sifmark.engines.apptainer.engine import describe_image
from sifmark.publish.reports import PullReport, PushReport, SigningKey, SignReport
from sifmark.publish.stores import (
    IDENTITY,
    SIGNED,
    ImageStore,
    PublishedImage,
    StoreListing,
    open_store,
    public_labels,
    publish,
    require_allowed,
)
from sifmark.recipes.labels import BUILD_KEY, PLATFORM, RECIPE
from sifmark.recipes.names import find_images, find_recipe, names_of
from sifmark.trust.checks import check_provenance, require_unchanged
from sifmark.trust.image import ImageUnderTest, image_under_test

PULL_COMMAND = "apptainer pull oras://"
SIGNS_IN_REGISTRY = False
_NOT_ANNOUNCED_REMEDY = "do not run it; ask the publisher"


def push(name: str, registry: str, tag: str, engine: Engine, settings: Settings) -> PushReport:
    """Push a recipe's image to a store, under each of its names. Raises SifmarkError.

    An image that others may replace is not pushed: what the store then announces would be theirs.
    """
    recipe, store = find_recipe(name), open_store(registry, tag, settings)
    path, names = Path(engine.address(recipe)), (recipe, *names_of(recipe))
    with exclusive_lock(lock_path(recipe, engine)):
        require_unshared(path, "an image that is to be pushed")
        image = image_under_test(engine, str(path), settings)
        _require_recipe(image, recipe, path)
        require_allowed(store.host, path.name, image.labels, settings)
        with step(f"hash {path.name}"):
            built = describe_image(path, image.inspection)
        check_provenance(image)
        published = publish(path, built.digest, built.size, _annotations(image, built))
        sent = send_file(store, names, published, path)
        reference = f"{store.reference(recipe)}@{published.digest}"
        update_record(recipe, engine, pushed=reference)
    summary = f"{'sent' if sent else 'was there already'}, with {len(names) - 1} more names"
    references = tuple(map(store.reference, names))
    return PushReport(reference, published.digest, built.identity, references, summary, built.digest)


def pull(name: str, registry: str, tag: str, engine: Engine, settings: Settings, signed: bool) -> PullReport:
    """Fetch an image, and give it its names when digests, labels and signature are verified.

    With `signed` a trusted signature is required. Nothing has its final name before. Raises SifmarkError.
    """
    recipe, store = find_recipe(name), open_store(registry, tag, settings)
    published_name = find_images(name)[0].name if name != recipe else recipe
    published = store.resolve(published_name)
    target = Path(engine.address(recipe))
    target.parent.mkdir(parents=True, exist_ok=True)
    reference = store.reference(published_name)
    require_space(reference, published.size, target.parent)
    with exclusive_lock(lock_path(recipe, engine)):
        with atomic_path(target) as draft:
            fetch_file(store, published_name, published, draft)
            draft.chmod(0o755)
            inspection = engine.inspect(str(draft))
            built = describe_image(draft, inspection)
            image = ImageUnderTest(engine, str(draft), inspection, settings)
            _require_announced(image, recipe, published.annotations)
            signer = inspection.signer(settings.keys) if signed else None
            pulled = f"{reference}@{published.digest}"
            write_image_record(recipe, engine, built, inspection.labels, pulled=pulled, signed_by=signer)
            if signer:
                ledger.record_trusted(built.digest, settings, signer)
        names = engine.tag_workloads(recipe)
    return PullReport(str(target), published.digest, built.identity, signer, names, built.digest)


def sign(name: str, key: SigningKey, registry: str, tag: str, engine: Engine, settings: Settings) -> SignReport:
    """Sign a recipe's image in place of its signatures until now. All its names become links to the signed file.

    The image keeps its identity. An image that is not as its record says is not signed: a signature would hide that.
    Nor is one in a folder where others could replace the draft after this check. Raises SifmarkError.
    """
    if registry or tag:
        remedy = "leave --registry and --tag to sifmark registry.push"
        raise UsageError("a SIF is signed here, before it is pushed", remedy, code="invalid-option")
    recipe = find_recipe(name)
    target = Path(engine.address(recipe))
    with exclusive_lock(lock_path(recipe, engine)):
        engine.inspect(str(target))
        require_unshared(target, "an image that is to be signed")
        with atomic_path(target) as draft, step(f"sign {target.name}"):
            shutil.copyfile(target, draft)
            image = image_under_test(engine, str(draft), settings)
            require_unchanged(image)
            _require_recipe(image, recipe, target)
            signature.sign(draft, key.file, key.keyring_number)
            draft.chmod(0o755)
            built = describe_image(draft, engine.inspect(str(draft)))
        if record := read_record(recipe, engine, strict=False):
            ledger.copy_trust(built.digest, record.digest, settings)
            update_record(recipe, engine, digest=built.digest)
        names = engine.tag_workloads(recipe)
    summary = f"{target}: signed, {built.identity}, {len(names)} names"
    return SignReport(str(target), published=False, summary=summary)


def listing(registry: str, tag: str, settings: Settings) -> StoreListing:
    """Return the listing of a store. Raises UsageError if the name is not one of a store."""
    return open_store(registry, tag, settings)


def fetch_file(store: ImageStore, name: str, image: PublishedImage, target: Path) -> None:
    """Fetch the SIF of a name from a store. Raises RegistryError if it is not what its digest says."""
    with step(f"pull {store.reference(name)}, {human_size(image.size)}") as progress:
        store.pull(name, image, target, lambda size: progress.transferred(size, image.size))


def send_file(store: ImageStore, names: Sequence[str], image: PublishedImage, file: Path) -> bool:
    """Push a SIF under names, the first of which gets the bytes. Return whether the store did not have it yet."""
    with step(f"push {file.name}, {human_size(image.size)}, to {store.reference(names[0])}") as progress:
        return store.push(names, image, file, lambda size: progress.transferred(size, image.size))


def require_space(image: str, size: int, folder: Path) -> None:
    """Raise SifmarkError if a folder has no room for an image of a size in bytes."""
    if size > (free := free_space(folder)):
        raise SifmarkError(
            f"{image} takes {human_size(size)}, {folder} has {human_size(free)} left",
            "free space (sifmark clean), or name another folder: dist in sifmark.toml, or TMPDIR",
            code="disk-full",
        )


def _annotations(image: ImageUnderTest, built: BuiltImage) -> dict[str, str]:
    signed = str(image.inspection.signed()).lower()
    return {**public_labels(image.labels), IDENTITY: built.identity, SIGNED: signed}


def _require_recipe(image: ImageUnderTest, recipe: str, path: Path) -> None:
    if image.recipe != recipe:
        cause = f"{path.name} is an image of recipe {image.recipe}"
        raise CheckFailed(cause, REBUILD_REMEDY, code="recipe-mismatch")


def _require_announced(image: ImageUnderTest, recipe: str, annotations: Mapping[str, str]) -> None:
    """Raise SifmarkError if what came is not the image that was requested and announced, or not what it says."""
    labels, identity = image.labels, image.inspection.identity()
    for label, wanted in ((RECIPE, recipe), (PLATFORM, platform_name()), (BUILD_KEY, annotations.get(BUILD_KEY))):
        if labels.get(label) != wanted:
            cause = f"the image has {label} {labels.get(label)}, not {wanted}"
            raise SifmarkError(cause, _NOT_ANNOUNCED_REMEDY, code="not-as-announced")
    if identity != annotations.get(IDENTITY):
        cause = f"the image is {identity}, announced was {annotations.get(IDENTITY)}"
        raise SifmarkError(cause, _NOT_ANNOUNCED_REMEDY, code="not-as-announced")
    try:
        check_provenance(image)
    except CheckFailed as reason:
        cause = f"the image contradicts itself: {reason.cause}"
        raise SifmarkError(cause, _NOT_ANNOUNCED_REMEDY, code=reason.code) from reason
