"""Configurations of cells, resolved by the image's own code without a run, or why an image would refuse them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from sifmark.core.paths import import_shared
from sifmark.recipes.recipe import Recipe, load_recipe, recipe_names
from sifmark.studies.image_options import UNSEEN, Cell, Division, division_of, options_of, usage_error
from sifmark.studies.study import System

_KEYS = {"--replicas": "devices", "--find-max-batch": 'batch_size = "max"'}  # those that are called otherwise
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
ANYWHERE = (System("any", ""), System("any", "", devices=2))  # what is between devices needs several
_SINGLE = ("fp32", "tf32")


@dataclass(frozen=True, slots=True)
class ImageTarget:
    """What an image runs on: a framework and a kind of device."""

    framework: str
    device: str


@dataclass(frozen=True, slots=True, eq=False)  # shared by cells, and compared by identity
class ResolvedConfig:
    """A cell as an image would run it: its configuration, or why there is none."""

    problem: str = ""
    configuration: Any = None  # entrypoints.planning.configuration.Configuration
    searches: bool = False  # for the largest batch
    endless: bool = False  # whether epochs are as long as data that were not looked at


def target_of(recipe: str) -> ImageTarget:
    """Return the target of a recipe's image."""
    loaded: Recipe = load_recipe(recipe)
    return ImageTarget(loaded.framework, loaded.device)


def problem_anywhere(cell: Cell) -> str:
    """Return why a cell can run on no kind of device; empty if it can run on one."""
    problem = ""
    for target, system in product(_targets(), ANYWHERE):
        problem = resolve_config(cell, division_of(cell, system), target).problem
        if not problem:
            return ""
    return problem


def resolve_config(cell: Cell, division: Division, target: ImageTarget, more: Sequence[str] = ()) -> ResolvedConfig:
    """Return the configuration of a cell, with every default filled in, or why an image of this target refuses it."""
    if cell["workload"] not in _cards(target.framework):
        return ResolvedConfig(f"{cell['workload']} is not implemented in {target.framework}")
    if division.devices % division.parts:
        return ResolvedConfig(f"{division.devices} devices are no multiple of the {division.parts} of a copy")
    return _resolved(options_of(cell, division, more), target)


def _in_keys(text: str) -> str:
    """Return what an image says of its options in terms of the keys of a study."""
    for option, key in _KEYS.items():
        text = text.replace(option, key)
    return _OPTION.sub(lambda match: match[1].replace("-", "_"), text)


def card_of(configuration: Any) -> Any:
    """Return the card of a configuration's workload."""
    return _cards(configuration.framework)[configuration.workload]


@cache
def _resolved(options: Any, target: ImageTarget) -> ResolvedConfig:
    """Return options resolved; many cells of a study have the same but for their seed."""
    try:
        card = _cards(target.framework)[options.workload]
        configuration = _planning().resolve(options, card, _image(target))
    except usage_error() as error:
        return ResolvedConfig(_in_keys(str(error)))
    supported = _precisions(ImageTarget(target.framework, configuration.device))
    if configuration.precision not in supported:
        precisions = ", ".join(supported)
        return ResolvedConfig(
            f"precision {configuration.precision}: {configuration.device} in {target.framework} has {precisions}"
        )
    endless = bool(options.samples_per_epoch == UNSEEN)
    return ResolvedConfig(configuration=configuration, searches=options.find_max_batch, endless=endless)


@cache
def _precisions(target: ImageTarget) -> tuple[str, ...]:
    """Return the precisions of a device; all for one that the rules do not list, whose image will say."""
    kinds: Mapping[str, tuple[str, ...]] = import_shared("rules.machine").KINDS
    names = kinds.get(target.device) or import_shared("contract.choices").PRECISIONS
    # In TensorFlow half precision would need Keras layers, which the networks do not use.
    return tuple(name for name in names if target.framework == "pytorch" or name in _SINGLE)


@cache
def _targets() -> tuple[ImageTarget, ...]:
    return tuple(dict.fromkeys(map(target_of, recipe_names())))


@cache
def _cards(framework: str) -> Mapping[str, Any]:
    cards: Mapping[str, Any] = import_shared("contract.cards").load_for(framework)
    return cards


@cache
def _image(target: ImageTarget) -> dict[str, str]:
    return {"framework": target.framework, "device": target.device}


@cache
def _planning() -> Any:
    return import_shared("planning.resolve")
