"""Rules about names: workload, device and image are what they say, in characters that show."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Iterator, Mapping

from entrypoints.contract import cards
from entrypoints.contract.cards import Card, routing
from entrypoints.results.roofline import flops_of_unit
from entrypoints.rules.facts import Facts
from entrypoints.rules.rule import differ, rule
from entrypoints.system.session import BOOT_FORM, JOB_FORM

CORRECTED = 2  # the largest factor between a number of a card and that of another version of it
FORMER_TITLES = {  # of cards whose problem is the same, in results of sifmark 0.2 and earlier
    "gpt2": "GPT-2 over characters, 67 symbols and 128 places",
    **{
        f"gpt2_{size}": f"GPT-2 {words} over characters, 67 symbols and 128 places"
        for size, words in (("medium", "medium"), ("large", "large"), ("xl", "XL"), ("xxl", "XXL"), ("xxxl", "XXXL"))
    },
    "gpt_117m": "GPT with 117 million parameters, 1024 places",
    "gpt_800m": "GPT with 800 million parameters, 2048 places",
    "gpt_13b": "GPT with 13 billion parameters, 2048 places",
    "gpt_175b": "GPT with 175 billion parameters, 2048 places",
}
# Fields whose texts are names of programs and vendors; all others may be in any language.
ASCII = ("workload", "accelerator", "host")


@rule(
    "a workload with the identity of a card has its name, title, set, unit, parameters, routing and operations",
    "The identity decides what is compared, and the rest is what people read.",
)
def workload_is_that_of_its_identity(facts: Facts) -> Iterator[str]:
    """Compare the workload with the card of its identity, if this sifmark has it."""
    workload, card = facts.document["workload"], card_of(facts)
    if card is None:
        return
    expected = {
        "name": card.name,
        "unit": card.problem["unit"],
        "parameters": card.problem["parameters"],
    }
    for name, value in expected.items():
        if workload[name] != value:
            yield differ(f"workload.{name}", workload[name], value, f"the identity of {card.name}")
    if workload["title"] not in (card.title, FORMER_TITLES.get(card.name)):
        yield differ("workload.title", workload["title"], card.title, f"the identity of {card.name}")
    if workload.get("set", card.set) != card.set:  # results before 0.3.0 have none
        yield differ("workload.set", workload["set"], card.set, f"the identity of {card.name}")
    if workload.get("routing") != routing(card.problem):
        yield differ("workload.routing", workload.get("routing"), routing(card.problem), f"the identity of {card.name}")
    if facts.task not in card.tasks:
        yield differ("workload.task", facts.task, ", ".join(card.tasks), f"the identity of {card.name}")
        return
    for name, count in flops_of_unit(card, facts.task)._asdict().items():
        given = workload["flops"].get(name, count)  # schema 1.1 has only one of them
        if given != count:
            yield differ(f"workload.flops.{name}", given, count, f"the identity of {card.name}")


@rule(
    "a workload with the name of a card, and another identity, has the card's unit, and its parameters and operations "
    "but for a factor of 2; a card's title is that of no other workload",
    "Another version of a workload is still the same network.",
    "a factor of 2: a card's problem may have been corrected",
)
def known_name_is_that_of_its_card(facts: Facts) -> Iterator[str]:
    """Compare the workload with the card of its name, and its title with those of other cards."""
    workload = facts.document["workload"]
    titled = names_by_title().get(workload["title"], workload["name"])
    if titled != workload["name"]:
        yield differ("workload.name", workload["name"], titled, "workload.title")
    card = cards_by_name().get(workload["name"])
    if card is None or card is card_of(facts) or facts.configuration["smoke"]:  # which may be of a reduced network
        return
    if workload["unit"] != card.problem["unit"]:
        yield differ("workload.unit", workload["unit"], card.problem["unit"], f"the name {card.name}")
    numbers = {"parameters": (workload["parameters"], card.problem["parameters"])}
    if facts.task in card.tasks:
        counts = flops_of_unit(card, facts.task)._asdict().items()
        numbers.update({f"flops.{name}": (workload["flops"].get(name, count), count) for name, count in counts})
    for name, (value, expected) in numbers.items():
        if not expected / CORRECTED <= value <= expected * CORRECTED:
            yield differ(f"workload.{name}", value, expected, f"the name {card.name}")


@rule(
    "`workload.name` is of small letters, digits and underscores",
    "A name of other letters can look like that of a card.",
)
def workload_name_is_plain(facts: Facts) -> Iterator[str]:
    """Look for other characters in the name."""
    workload = facts.document["workload"]
    name: str = workload["name"]
    if not name.isascii() or not name.replace("_", "").isalnum() or name != name.lower():
        yield f"workload.name: {name!r} is not of small letters, digits and underscores"


@rule(
    "`accelerator.kind` = `configuration.device`, with its replicas; `provenance.software.framework` = "
    "`configuration.framework`; `provenance.stand_in` and `image.framework`, if there is an image, are the image's",
    "What computed is what was asked to compute.",
)
def device_is_that_asked_for(facts: Facts) -> Iterator[str]:
    """Compare device, framework and image with the configuration."""
    given, device, provenance = facts.configuration, facts.document["accelerator"], facts.document["provenance"]
    if device["kind"] != given["device"]:
        yield differ("accelerator.kind", device["kind"], given["device"], "configuration.device")
    if device.get("replicas", given["replicas"]) != given["replicas"]:
        yield differ("accelerator.replicas", device["replicas"], given["replicas"], "configuration.replicas")
    if provenance["software"]["framework"] != given["framework"]:
        yield differ(
            "provenance.software.framework",
            provenance["software"]["framework"],
            given["framework"],
            "configuration.framework",
        )
    image = provenance["image"]
    if provenance["stand_in"] != bool(image and image["stand_in"]):
        yield differ(
            "provenance.stand_in", provenance["stand_in"], bool(image and image["stand_in"]), "provenance.image"
        )
    if image and image["framework"] != given["framework"]:
        yield differ("provenance.image.framework", image["framework"], given["framework"], "configuration.framework")
    if facts.completed and "count" not in device:
        yield "accelerator.count: a completed run had a device"


@rule(
    "texts have only characters that show; names of workload, device and host are ASCII",
    "A name that looks like another, or hides a part of itself, misleads a reader.",
)
def texts_show_what_they_are(facts: Facts) -> Iterator[str]:
    """Look for characters that do not show."""
    message = facts.document["status"]["message"]
    if message.isspace():
        yield "status.message: it does not show"
    # JSON has other control characters only escaped.
    if facts.text.isascii() and "\\" not in facts.text and "\x7f" not in facts.text:
        return
    for path, text in _texts(facts.document, ()):
        if not text.isprintable():
            yield f"{'.'.join(path)}: {text[:80]!a} has characters that do not show"
        elif path[0] in ASCII and not text.isascii():
            yield f"{'.'.join(path)}: {text[:80]!a} has letters of another alphabet"


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts in a value with their paths, keys that do not show among them."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not key.isprintable():
                yield (*path, "key"), key
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, (*path, str(number)))


@rule(
    "`session.boot` is a UUID; `session.job` has 1 to 255 characters, none of them blank",
    "Repeats are counted by session: any text would make as many of them as wanted.",
)
def session_has_identifiers(facts: Facts) -> Iterator[str]:
    """Check the form of both identifiers; results before schema 1.2 have none."""
    session = facts.document.get("session", {})
    for name, form in (("boot", BOOT_FORM), ("job", JOB_FORM)):
        value = session.get(name, {}).get("value")
        if value is not None and not form.fullmatch(value):
            yield f"session.{name}: {value[:80]!r} is no identifier of a {name}"


def card_of(facts: Facts) -> Card | None:
    """Return the card of a result's workload; None if this sifmark has another one, or none."""
    return cards_by_identity().get(facts.document["workload"]["identity"])


@lru_cache(maxsize=None)
def cards_by_name() -> Mapping[str, Card]:
    """Return the cards of this sifmark by their name."""
    return cards.load()


@lru_cache(maxsize=None)
def cards_by_identity() -> Mapping[str, Card]:
    """Return the cards of this sifmark by their identity."""
    return {card.identity: card for card in cards_by_name().values()}


@lru_cache(maxsize=None)
def names_by_title() -> Mapping[str, str]:
    """Return the names of the cards of this sifmark by their title."""
    return {card.title: name for name, card in cards_by_name().items()}
