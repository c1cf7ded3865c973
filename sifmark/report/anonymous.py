"""Results without what identifies a site: labels such as `host-1` in place of what the catalogue calls private.

Labels are numbered in the order of the results' dates, so that the same results have the same labels whatever the
order of paths, and no label follows from a name. Free text is withheld.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePath
from typing import Any

from sifmark.core import paths as project
from sifmark.core.paths import import_shared
from sifmark.recipes.recipe import load_recipe, recipe_names
from sifmark.results.catalogue import fields
from sifmark.results.load import LoadedResult

WITHHELD = "(withheld)"
FILE, SITE, HOST, DEVICE, VALUE = "result", "site", "host", "device", "value"
INVALID = "it is not valid: sifmark results.validate says why"
_NUMBERS = re.compile(r"[-+]?\d[\d.,:;+-]*(?:[kKMGTsmh]|[KMGT]iB)?")
_SWITCHES = frozenset(("", "true", "false", "on", "off", "yes", "no", "none", "auto", "default", "enable", "disable"))
# A name that says only which part of a machine a device is, such as `package-0`.
_PART = re.compile(r"(?:package|dram|psys|cores?|node|socket|cpu|gpu|ipu|die|tile|board|card|module)[-_ ]?\d*")

Document = dict[str, Any]


@dataclass
class Anonymiser:
    """Replaces what identifies a site in results, the same name by the same label."""

    sites: bool = False  # whether names of sites are replaced too
    _labels: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def result(self, result: LoadedResult) -> LoadedResult:
        """Return a result with labels. Its signature is still read from the file that it is in."""
        file, path = self.label(FILE, result.file), str(result.path)
        if result.problems:
            return LoadedResult(file, {}, (INVALID,), unpacked=path)
        return replace(result, file=file, document=self.document(result.document), unpacked=path)

    def document(self, document: Document) -> Document:
        replaced: Document = self._value("", document)
        return replaced

    def value(self, path: str, text: str) -> str:
        """Return what stands for the text at a dotted path of results, such as the name of a baseline."""
        return self._text(path, text)

    def text(self, _: str) -> str:
        """Return what stands for a text that is in no result, such as an error."""
        return WITHHELD

    def label(self, kind: str, name: str) -> str:
        if (kind, name) not in self._labels:
            self._counts[kind] += 1
            suffix = PurePath(name).suffix if kind == FILE else ""
            self._labels[kind, name] = f"{kind}-{self._counts[kind]}{suffix}"
        return self._labels[kind, name]

    def host(self, name: str) -> str:
        """Return the label of a host, which has the same one under its short name."""
        short = name.partition(".")[0]
        return self.label(HOST, name if short.isdigit() else short)

    def _value(self, path: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(f"{path}.{key}" if path else key, each) for key, each in value.items()}
        if isinstance(value, list):
            kept = [self._value(path, each) for each in value]
            return [WITHHELD] if kept and set(map(str, kept)) == {WITHHELD} else kept
        return self._text(path, value) if isinstance(value, str) else value

    def _text(self, path: str, text: str) -> str:
        """Return a text, or what stands for it. One of which the catalogue knows nothing is withheld."""
        kind = _kind_of(path)
        if kind is None:
            return WITHHELD
        return _RULES[kind](self, text) if kind in _RULES else self.label(kind, text) if kind else text


def anonymiser_of(results: Iterable[LoadedResult], sites: bool = False) -> Anonymiser:
    """Return what replaces names in these results: all have their labels, in the order of the results' dates."""
    anonymiser = Anonymiser(sites)
    for result in sorted(results, key=_date):
        anonymiser.result(result)
    return anonymiser


def _date(result: LoadedResult) -> tuple[str, ...]:
    document = result.document
    return ("~", result.file) if result.problems else (document["started"], document["id"], result.file)


@cache
def _kind_of(path: str) -> str | None:
    """Return the kind of label of a text at a dotted path, empty if it is public; None if nothing is known of it."""
    parent, _, last = path.rpartition(".")
    if parent.startswith("metrics.") or parent in _facts():
        return {"unit": "", "reason": _TEXT}.get(last, _kinds().get(path))
    while path not in _kinds() and "." in path:  # a key of a map, such as environment.variables.NAME
        path = path.rpartition(".")[0]
    return _kinds().get(path)


@cache
def _kinds() -> Mapping[str, str | None]:
    return {each.path.replace("[]", ""): each.private for each in fields()}


@cache
def _facts() -> frozenset[str]:
    return frozenset(each.path.replace("[]", "").removesuffix(".value") for each in fields() if each.fact)


def _site(anonymiser: Anonymiser, text: str) -> str:
    return anonymiser.label(SITE, text) if anonymiser.sites else text


def _kernel(anonymiser: Anonymiser, text: str) -> str:
    """Keep the version alone: a kernel that was built on a site is often called like it."""
    version = re.match(r"\d+(?:\.\d+)+", text)
    return version[0] if version else anonymiser.label(VALUE, text)


def _meter(anonymiser: Anonymiser, text: str) -> str:
    """Keep the name of a meter of ours, not the place where it is."""
    name, colon, place = text.partition(":")
    kept = name if name in _meters() else anonymiser.label(VALUE, name)
    return f"{kept}:{place if place.isdigit() else anonymiser.label('path', place)}" if colon else kept


def _device(anonymiser: Anonymiser, text: str) -> str:
    return text if _PART.fullmatch(text) else anonymiser.label(DEVICE, text)


def _recipe(anonymiser: Anonymiser, text: str) -> str:
    return text if text in recipe_names() else anonymiser.label("recipe", text)


def _base(anonymiser: Anonymiser, text: str) -> str:
    return text if text in _public_bases() else anonymiser.label("base", text)


def _setting(anonymiser: Anonymiser, text: str) -> str:
    """Keep numbers and switches; anything else may name a network, a host or a folder."""
    return text if _NUMBERS.fullmatch(text) or text.lower() in _SWITCHES else anonymiser.label(VALUE, text)


@cache
def _meters() -> frozenset[str]:
    sources = (source for meter in import_shared("rules.energy").METERS.values() for source in meter.sources)
    return frozenset((*sources, "auto", "none", *_meter_modules()))


def _meter_modules() -> Iterable[str]:
    return (path.stem for path in (project.ENTRYPOINTS / "metering" / "meters").glob("*.py"))


@cache
def _public_bases() -> frozenset[str]:
    """Return the bases of the recipes that sifmark ships."""
    return frozenset(load_recipe(name).base.reference for name in recipe_names())


_TEXT = "text"  # of a program or a user: nobody knows what it says
# By the kind of label what stands for a text; others become a label of their kind.
_RULES: Mapping[str, Callable[[Anonymiser, str], str]] = {
    _TEXT: lambda _, __: WITHHELD,
    HOST: Anonymiser.host,
    SITE: _site,
    DEVICE: _device,
    "kernel": _kernel,
    "meter": _meter,
    "recipe": _recipe,
    "base": _base,
    "setting": _setting,
}
