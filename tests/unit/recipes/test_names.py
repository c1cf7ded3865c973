"""Names and globs."""

import pytest
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.recipes.hardware import all_hardware
from sifmark.recipes.names import cards, find_image, find_images, images, workloads_of
from sifmark.recipes.recipe import recipe_names


def test_names_have_one_dash() -> None:
    assert images()
    assert all(image.name.count("-") == 1 for image in images())


@pytest.mark.parametrize("pattern", ["resnet50-cpu", "resnet50-*", "*-cpu", "cpu"])
def test_patterns_find_the_image(pattern: str) -> None:
    assert "resnet50-cpu" in [image.name for image in find_images(pattern)]


@pytest.mark.parametrize("pattern", ["resnet51-cpu", "nothing-*", "", "resnet50"])
def test_unknown_names_are_usage_errors_with_a_suggestion(pattern: str) -> None:
    with refused(UsageError, "unknown-name") as caught:
        find_images(pattern)
    assert "-cpu" in caught.value.remedy or "recipes: cpu, " in caught.value.remedy
    assert caught.value.exit_code == 2


WORDS = [word for each in all_hardware() if each.access for word in (each.name, *each.aliases)]


@pytest.mark.parametrize("word", sorted({*WORDS, "v100"}))
def test_names_of_hardware_lead_to_its_recipes(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_images(word.upper())
    meant = caught.value.remedy.removeprefix("did you mean ").removesuffix("?").split(" or ")
    assert caught.value.code == "unknown-name" and set(meant) <= set(recipe_names())
    assert (meant == ["cuda12"]) == (word == "v100"), "CUDA 13 dropped Volta"


def test_near_names_come_first() -> None:
    with pytest.raises(UsageError) as caught:
        find_image("resnet5-cpu")
    assert caught.value.remedy.startswith("did you mean resnet50-cpu or ")


def test_cards_are_checked_and_have_module_and_name() -> None:
    for name, card in cards().items():
        assert card["name"] == name
    assert workloads_of("cpu")
