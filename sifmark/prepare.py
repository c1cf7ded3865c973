"""Images packed into files that are read from the front: resumable, the same bytes each time, the manifest last."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sifmark.console import Step, say, step
from sifmark.errors import SifmarkError, UsageError, unknown_name
from sifmark.files import beside, human_size, sha256_file, sha256_json, sweep, write_json
from sifmark.originals import DamagedError, Original, Originals, find_originals, kind_of
from sifmark.packing import Packed, write_records, write_shard
from sifmark.results import legible
from sifmark.schema import check_document

SCHEMA = "manifest-1.0"
MANIFEST = "manifest.json"
JOURNAL = ".manifest.json"  # what is finished, until all is
MOST_NAMED = 5  # of the images that were skipped
TOLD_EVERY = 100  # images


class Format(NamedTuple):
    """A kind of file: its suffix, and what writes samples and counts them."""

    suffix: str
    write: Callable[[BinaryIO, Iterable[Packed]], int]


FORMATS = {"shards": Format("tar", write_shard), "records": Format("tfrecord", write_records)}


class Order(NamedTuple):
    """What decides every byte of the files."""

    format: str
    seed: int
    samples_per_file: int
    source: Originals

    @property
    def plan(self) -> str:
        """Its hash. Images count by name, class and size."""
        images = [[ascii(image.name), image.label, image.size] for image in self.source.images]
        classes = [ascii(name) for name in self.source.classes]
        return sha256_json([self.format, self.seed, self.samples_per_file, classes, images])

    def chunks(self) -> Iterator[tuple[str, list[tuple[str, Original]]]]:
        """Per file its name, and its images with their keys, in the order of the seed."""
        keyed = list(zip(keys(self.source.images), self.source.images, strict=True))
        random.Random(self.seed).shuffle(keyed)  # noqa: S311 - it mixes, and hides nothing
        for number, at in enumerate(range(0, len(keyed), self.samples_per_file)):
            yield f"data-{number:06d}.{FORMATS[self.format].suffix}", keyed[at : at + self.samples_per_file]


def prepare_data(source: str, target: str, format: str, samples_per_file: str, seed: str, strict: bool) -> None:  # noqa: A002
    """Pack the images of `source` into files in the folder `target`, and write their manifest.

    Raises UsageError for what cannot be meant, and SifmarkError where an image is damaged and `strict`, or all are.
    """
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    numbers = _whole("--seed", seed, 0), _whole("--samples-per-file", samples_per_file, 1)
    order = Order(format, *numbers, find_originals(Path(source)))
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    packing = Packing(order, folder, strict)
    with step(f"{source} to {format} in {target}") as current:
        packing.run(current)
    document = packing.document()
    write_json(folder / MANIFEST, document)
    (folder / JOURNAL).unlink(missing_ok=True)
    _tell(document, packing.kept, target)


class Packing:
    """The work on one target. What an earlier run finished and still matches is kept."""

    def __init__(self, order: Order, folder: Path, strict: bool) -> None:
        self.order, self.folder, self.strict = order, folder, strict
        self.kept = self.done = self.reused = 0  # files that an earlier run left; images; those of such files
        known = _known(folder, order.plan)
        self.known = {file["name"]: file for file in known.get("files", [])}
        self.skipped = set(known.get("skipped", []))
        self.files: list[dict[str, Any]] = []
        if strict and self.skipped:
            raise _damaged(min(self.skipped), "not whole, as an earlier run found")

    def run(self, current: Step) -> None:
        """Have every file, telling how far it is."""
        for name, images in self.order.chunks():
            if self.matches(name):
                self.files.append(self.known[name])
                self.kept += 1
                self.done += len(images)
                self.reused += len(images)
                current.detail(f"{self.done} images are there already, in {self.kept} files")
            else:
                self.write(name, images, current)
        if not self.files:
            raise SifmarkError(f"not one image is whole, for example {legible(min(self.skipped))}", "give others")

    def matches(self, name: str) -> bool:
        """Whether an earlier run finished the file, and it is as that run left it."""
        path, known = self.folder / name, self.known.get(name)
        return bool(
            known and path.is_file() and path.stat().st_size == known["bytes"] and sha256_file(path) == known["sha256"]
        )

    def write(self, name: str, images: Sequence[tuple[str, Original]], current: Step) -> None:
        """One file, or none where not one of its images is whole. The journal knows it before it has its name."""
        with beside(self.folder / name) as draft:
            with draft.open("wb") as stream:
                samples = FORMATS[self.order.format].write(stream, self.whole(images, current))
            if samples:
                described = {"bytes": draft.stat().st_size, "sha256": sha256_file(draft)}
                self.files.append({"name": name, "samples": samples, **described})
                write_json(self.folder / JOURNAL, self.document())
        if not samples:
            (self.folder / name).unlink()

    def whole(self, images: Sequence[tuple[str, Original]], current: Step) -> Iterator[Packed]:
        """The images that are whole."""
        for key, image in images:
            self.done += 1
            if self.done % TOLD_EVERY == 0:
                current.detail(self.progress(current))
            try:
                content = image.read()
                yield Packed(key, kind_of(content), content, image.label)
            except DamagedError as error:
                if self.strict:
                    raise _damaged(image.name, str(error)) from None
                self.skipped.add(image.name)

    def progress(self, current: Step) -> str:
        """How far it is, and how long it may take."""
        total = len(self.order.source.images)
        left = current.seconds / (self.done - self.reused) * (total - self.done)
        return f"{self.done} of {total} images, {len(self.files)} files, {left:.0f} s left"

    def document(self) -> dict[str, Any]:
        """The manifest of the files so far."""
        document = {
            "schema_version": "1.0",
            "plan": self.order.plan,
            "format": self.order.format,
            "seed": self.order.seed,
            "samples_per_file": self.order.samples_per_file,
            "samples": sum(file["samples"] for file in self.files),
            "bytes": sum(file["bytes"] for file in self.files),
            "classes": self.order.source.classes,
            "files": self.files,
            "skipped": sorted(self.skipped),
        }
        check_document(SCHEMA, document, MANIFEST)
        return document


def keys(images: Sequence[Original]) -> Iterator[str]:
    """A key for each image: its name without suffix and without dots, at which readers would cut; none twice."""
    taken: set[str] = set()
    for image in images:
        folder, _, file = image.name.rpartition("/")
        stem = f"{folder}/{file.rpartition('.')[0].replace('.', '_')}"
        key, number = stem, 1
        while key in taken:
            number += 1
            key = f"{stem}_{number}"
        taken.add(key)
        yield key


def _known(folder: Path, plan: str) -> dict[str, Any]:
    """What an earlier run of the same plan told of its files. Raises UsageError where the folder holds other things."""
    told = next((path for path in (folder / MANIFEST, folder / JOURNAL) if path.is_file()), None)
    if told is None:
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            raise UsageError(f"{folder} is not empty", "name a new folder")
        return {}
    try:
        document = json.loads(told.read_text())
    except ValueError as error:
        raise UsageError(f"{told}: {error}", "name a new folder, or remove this one") from None
    check_document(SCHEMA, document, str(told))
    if document["plan"] != plan:
        what = "prepared from another source, or with another format, seed or number of samples per file"
        raise UsageError(f"{folder} holds data {what}", "name a new folder, or remove this one")
    return dict(document)


def _whole(option: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(f"{option} {text!r} is not a whole number from {least}", "give one, or leave the option out")
    return int(text)


def _damaged(name: str, why: str) -> SifmarkError:
    return SifmarkError(f"{legible(name)}: {why}", "mend or remove it, or leave --strict out")


def _tell(document: dict[str, Any], kept: int, target: str) -> None:
    size, skipped = human_size(document["bytes"]), document["skipped"]
    before = f"; {kept} of them were there already" if kept else ""
    say(
        f"{target}: {size} with {document['samples']} samples of {len(document['classes'])} classes "
        f"in {len(document['files'])} files{before}"
    )
    if skipped:
        more = ", ..." if len(skipped) > MOST_NAMED else ""
        say(f"skipped {len(skipped)} damaged images: {', '.join(map(legible, skipped[:MOST_NAMED]))}{more}")
