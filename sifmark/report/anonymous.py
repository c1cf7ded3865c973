"""Results without what identifies a site: labels such as `host-1` stand for hosts, users, paths and devices.

Labels are numbered in the order of the results' dates, so that the same results have the same labels whatever the
order of paths, and no label follows from a name. Every text of a result is treated as `_RULES` says; a text of which
nothing is said there becomes a label too.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any

from sifmark.core import paths as project
from sifmark.recipes.recipe import load_recipe, recipe_names
from sifmark.results.load import LoadedResult

SITE = "site"
FILE, HOST, USER, PATH, DEVICE, KEY, LIBRARY, VALUE = (
    "result", "host", "user", "path", "device", "key", "library", "value",
)  # fmt: skip
INVALID = "it is not valid: sifmark results.validate says why"
_SHORTEST = 3  # characters of a name that is replaced within texts: shorter ones occur in other words' places

Document = dict[str, Any]
Rule = Callable[["Anonymiser", str], str]


@dataclass
class Anonymiser:
    """Replaces what identifies a site in results. Made of all results of a report, before any of them is replaced."""

    sites: bool = False  # whether names of sites are replaced too
    _labels: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)  # labels of what is replaced within texts, in lower case
    _texts: list[str] | None = None  # while labels are given: texts that are read after all names have theirs

    def result(self, result: LoadedResult) -> LoadedResult:
        """Return a result with labels. Its signature is still read from the file that it is in."""
        file, path = self.label(FILE, result.file), str(result.path)
        if result.problems:
            return LoadedResult(file, {}, (INVALID,), unpacked=path)
        return replace(result, file=file, document=self.document(result.document), unpacked=path)

    def document(self, document: Document) -> Document:
        """Return a valid document with labels."""
        self._learn_libraries(document)
        replaced: Document = self._value("", document)
        replaced["provenance"]["command"] = list(self._command(document))
        return replaced

    def value(self, name: str, text: str) -> str:
        """Return what became of a text at a dotted path of results, such as the name of a baseline."""
        return _rule(name)(self, text)

    def label(self, kind: str, value: str) -> str:
        """Return the label of a value."""
        key = (kind, value)
        if key not in self._labels:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            suffix = PurePath(value).suffix if kind == FILE else ""
            self._labels[key] = f"{kind}-{self._counts[kind]}{suffix}"
            self._learn(kind, value)
        return self._labels[key]

    def text(self, text: str) -> str:
        """Return a text of anybody, such as a message, with labels in place of names, paths and addresses."""
        if self._texts is not None:
            self._texts.append(text)
            return text
        return self._pattern.sub(self._replacement, text)

    def host(self, name: str) -> str:
        """Return the label of a host, which has the same one under its short name."""
        label = self.label(HOST, name)
        short = name.partition(".")[0]
        if short != name and not short.isdigit():
            self._labels.setdefault((HOST, short), label)
            self._learn(HOST, short)
        return label

    def path(self, text: str) -> str:
        """Return the label of a path, whose user gets one too."""
        if user := _HOME.search(text):
            self.label(USER, user[1])
        return self.label(PATH, text)

    def meter(self, text: str) -> str:
        """Return a meter with the place where it is as a label."""
        name, colon, place = text.partition(":")
        kept = name if name in _meters() else self.label(VALUE, name)
        return f"{kept}:{place if place.isdigit() else self.path(place)}" if colon else kept

    def _learn(self, kind: str, value: str) -> None:
        if kind not in (VALUE, SITE) or (kind == SITE and self.sites):
            self._names.setdefault(value.lower(), self._labels[kind, value])
            self.__dict__.pop("_pattern", None)

    def _learn_libraries(self, document: Document) -> None:
        for name in document.get("environment", {}).get("preloaded", ()):
            self.label(LIBRARY, name)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = sorted((name for name in self._names if len(name) >= _SHORTEST), key=lambda name: (-len(name), name))
        # A path goes as a whole, so that no part of it is left beside a name.
        paths, words = ([re.escape(name) for name in names if ("/" in name) is is_path] for is_path in (True, False))
        parts = (_alone(paths), _SUSPICIOUS, _alone(words))
        return re.compile("|".join(parts), re.IGNORECASE)

    def _replacement(self, match: re.Match[str]) -> str:
        text = match[0]
        if label := self._names.get(text.lower()):
            return label
        if match["quoted"]:
            return f"{text[0]}{self.path(text[1:-1])}{text[-1]}"
        if match["path"]:
            return self.path(text)
        return self.host(text) if match["address"] else self.label(DEVICE, text)

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(f"{name}.{key}" if name else key, each) for key, each in value.items()}
        if isinstance(value, list):
            return value if value and isinstance(value[0], int | float) else [self._value(name, each) for each in value]
        return _rule(name)(self, value) if isinstance(value, str) else value

    def _command(self, document: Document) -> Iterator[str]:
        """Yield a command with labels in place of all values that are no numbers and no settings of the result."""
        kept = {str(value) for part in ("configuration", "workload") for value in document[part].values()}
        kept -= {document["configuration"].get(name) for name in ("data_path", "evaluation_path", "meter")}
        option = ""
        for word in document["provenance"]["command"]:
            name, equals, value = word.partition("=")
            if _OPTION.fullmatch(name):
                option = "" if equals else name
                yield f"{name}={self._argument(name, value, kept)}" if equals else name
            else:
                yield self._argument(option, word, kept)
                option = ""

    def _argument(self, option: str, value: str, kept: set[str]) -> str:
        rule = _ARGUMENTS.get(option)
        if rule is not None:
            return rule(self, value)
        return value if value in kept or _NUMBERS.fullmatch(value) else self.label(VALUE, value)


def anonymiser_of(results: Iterable[LoadedResult], sites: bool = False) -> Anonymiser:
    """Return what replaces names in these results."""
    anonymiser = Anonymiser(sites)
    mentions = sorted(_Mentions.of(result, sites) for result in results)
    for mention in mentions:
        mention.give_labels(anonymiser)
    texts = dict.fromkeys(text for mention in mentions for text in mention.texts)
    labels = -1
    while labels != len(anonymiser._labels):  # a name that one text shows may begin an address in another
        labels = len(anonymiser._labels)
        for text in texts:
            anonymiser.text(text)
    return anonymiser


@dataclass(frozen=True, order=True)
class _Mentions:
    """What a result mentions: the labels that it asks for, and texts with further ones. Sorted by date."""

    place: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, result: LoadedResult, sites: bool) -> "_Mentions":
        """Return what a result mentions, in the order of its document."""
        alone = Anonymiser(sites, _texts=[])
        alone.result(result)
        document = result.document
        place = ("~", result.file) if result.problems else (document["started"], document["id"], result.file)
        return cls(place, tuple(alone._labels), tuple(dict.fromkeys(alone._texts or ())))

    def give_labels(self, anonymiser: Anonymiser) -> None:
        """Let what is mentioned have labels, if it has none."""
        for kind, value in self.labels:
            (anonymiser.host(value) if kind == HOST else anonymiser.label(kind, value))


def _alone(names: list[str]) -> str:
    """Return what matches one of some names, not as a part of a longer word."""
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(names) or '(?!)'})(?![A-Za-z0-9])"


def _kept(_: Anonymiser, text: str) -> str:
    return text


def _text(anonymiser: Anonymiser, text: str) -> str:
    return anonymiser.text(text)


def _as(kind: str) -> Rule:
    return lambda anonymiser, text: anonymiser.label(kind, text)


def _site(anonymiser: Anonymiser, text: str) -> str:
    return anonymiser.label(SITE, text) if anonymiser.sites else text


def _kernel(anonymiser: Anonymiser, text: str) -> str:
    """Keep the version alone: a kernel that was built on a site is often called like it."""
    version = re.match(r"\d+(?:\.\d+)+", text)
    return version[0] if version else anonymiser.label(VALUE, text)


def _recipe(anonymiser: Anonymiser, text: str) -> str:
    return text if text in recipe_names() else anonymiser.label("recipe", text)


def _base(anonymiser: Anonymiser, text: str) -> str:
    return text if text in _public_bases() else anonymiser.label("base", text)


def _setting(anonymiser: Anonymiser, text: str) -> str:
    """Keep numbers and switches; anything else may name a network, a host or a folder."""
    return text if _NUMBERS.fullmatch(text) or text.lower() in _SWITCHES else anonymiser.label(VALUE, text)


def _rendezvous(anonymiser: Anonymiser, text: str) -> str:
    host, colon, port = text.rpartition(":")
    return f"{anonymiser.host(host)}:{port}" if colon and port.isdigit() else anonymiser.host(text)


def _names_of(kind: str) -> Rule:
    """Return a rule that keeps a name that says only what a device is, such as `package-0`."""
    return lambda anonymiser, text: text if _PART.fullmatch(text) else anonymiser.label(kind, text)


def _limit(anonymiser: Anonymiser, text: str) -> str:
    """Keep what a driver calls a limit of clocks, such as `software power cap`, `TEMP` or `pl2`."""
    return text if _LIMIT.fullmatch(text) else anonymiser.label(VALUE, text)


# By dotted path in a result, lists left out, and for all that is below it; the longest path counts.
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            *("schema_version", "id", "started", "finished", "status", "workload", "configuration", "accelerator"),
            *("host", "conditions", "conditions_after", "device_conditions", "device_conditions_after"),
            *("provenance.image", "provenance.software", "numerics", "search", "phases", "data", "metrics", "target"),
            *(
                "power.scope",
                "power.method",
                "power.devices.load",
                "ranks.processors",
                "ranks.memory_nodes",
                "transport",
                "points",
                "epochs",
            ),
        ),
        _kept,
    ),
    "site": _site,
    "host.hostname": Anonymiser.host,
    "host.kernel": _kernel,
    "ranks.host": Anonymiser.host,
    "power.devices.host": Anonymiser.host,
    "power.devices.name": _names_of(DEVICE),
    "power.devices.load.limits.name": _limit,
    "accelerator.identifier": _as(DEVICE),
    "ranks.device": _names_of(DEVICE),
    "configuration.data_path": Anonymiser.path,
    "configuration.evaluation_path": Anonymiser.path,
    "configuration.meter": Anonymiser.meter,
    "power.source": Anonymiser.meter,
    "data.part": Anonymiser.path,
    "data.skipped.examples": _as("sample"),
    "conditions.memory_allocator": _text,
    "environment.variables": _setting,
    "environment.preloaded": _as(LIBRARY),
    "provenance.image.recipe": _recipe,
    "provenance.image.base.reference": _base,
    "provenance.image.file.signer": _as(KEY),
    "provenance.command": lambda _, text: text,  # replaced as a whole
    **dict.fromkeys(
        (
            *("status.message", "search.trials.message", "numerics.run_checks.faults"),
            *("device_conditions.other_processes", "device_conditions_after.other_processes"),
            *("device_conditions.partitioning", "device_conditions_after.partitioning"),
        ),
        _text,
    ),
}
_BY_LAST: Mapping[str, Rule] = {"reason": _text, "unit": _kept}  # wherever they are

_ARGUMENTS: Mapping[str, Rule] = {
    **dict.fromkeys(("--data", "--evaluation-data", "--output", "--measured-peak"), Anonymiser.path),
    "--meter": Anonymiser.meter,
    "--site": _site,
    "--rendezvous": _rendezvous,
}
_OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*")
_NUMBERS = re.compile(r"[-+]?\d[\d.,:;+-]*(?:[kKMGTsmh]|[KMGT]iB)?")
_SWITCHES = frozenset(("", "true", "false", "on", "off", "yes", "no", "none", "auto", "default", "enable", "disable"))
_PART = re.compile(r"(?:package|dram|psys|cores?|node|socket|cpu|gpu|ipu|die|tile|board|card|module)[-_ ]?\d*")
_HOME = re.compile(r"(?:/home/|/Users/|/users/|~)([A-Za-z0-9._-]+)")
# Folders of the kernel and of Apptainer are the same everywhere.
_SUSPICIOUS = "|".join(
    (
        r"""(?P<quoted>'~?/(?!(?:sys|proc|dev)\b)[^'\n]+'|"~?/(?!(?:sys|proc|dev)\b)[^"\n]+")""",
        r"(?P<device>\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
        r"|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b)",
        r"(?P<address>\b[\w.+-]+@[\w.-]+\w|\b(?:\d{1,3}\.){3}\d{1,3}\b"
        r"|\b(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|mil|int|eu|local|internal|cluster|lan|example|invalid|test)\b"
        r"|\b(?:[a-z0-9-]+\.){2,}[a-z]{2}\b)",
        r"(?P<path>\b[a-z][a-z+]*://[^\s'\",;)\]]+"
        r"|(?<![\w.])~?/(?!(?:sys|proc|dev|\.singularity\.d)\b)[^\s'\",;:()\[\]]+"
        r"|(?<![\w/.])(?:\.{1,2}/)?[\w.-]{2,}(?:/[\w.-]{2,})*/[\w-]{2,}\.[a-z]\w{1,5}\b"
        r"|(?<![\w/.])(?:\.{1,2}/)?[\w.-]{3,}(?:/[\w.-]{3,}){2,})",
    )
)


_LIMIT = re.compile(
    r"(?:software|hardware|board|sync) [a-z ]{1,30}|[A-Z]{3,8}|(?:prochot|ppt|socket|vr|hbm)_(?:thrm|pwr)|throttled"
    r"|(?:psys_|vr_|soc_|mem_|soc_avg_)?(?:pl[124]|thermal|thermalert|tdc|crit)|prochot|ratl|iccmax|fast_vmode|p0_freq"
)


@cache
def _rule(name: str) -> Rule:
    """Return the rule of a dotted path; a text that is of no rule becomes a label."""
    if rule := _BY_LAST.get(name.rpartition(".")[2]):
        return rule
    while name:
        if name in _RULES:
            return _RULES[name]
        name = name.rpartition(".")[0]
    return _as(VALUE)


@cache
def _meters() -> frozenset[str]:
    """Return the words that a result has for meters."""
    names = {path.stem for path in (project.ENTRYPOINTS / "metering" / "meters").glob("*.py")}
    sources = {"acpi_power_meter", "amdsmi", "rocm_smi", "level_zero", "drm_hwmon", "auto", "none"}
    return frozenset(names | sources)


@cache
def _public_bases() -> frozenset[str]:
    """Return the bases of the recipes that sifmark ships."""
    return frozenset(load_recipe(name).base.reference for name in recipe_names())
