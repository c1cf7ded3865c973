"""Pins of vendors' bases: each says how it was seen, and what nobody has seen is not invented."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import UnbuildableError
from sifmark.core.settings import Settings, load_settings
from sifmark.recipes.lockfile import read_lock
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import UNRESOLVED, Target, load_recipe, recipe_names

# What PyTorch 2.14 for XPUs needs of oneAPI, by the release of its compiler and libraries.
ONEAPI = {
    *("intel-cmplr-lib-rt", "intel-cmplr-lib-ur", "intel-cmplr-lic-rt", "intel-sycl-rt", "dpcpp-cpp-rt", "mkl"),
    *("intel-opencl-rt", "intel-openmp", "onemkl-license"),
    *(f"onemkl-sycl-{part}" for part in ("blas", "dft", "lapack", "rng", "sparse")),
}


def pins() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in recipe_names():
        digests = tomllib.loads((paths.RECIPES / f"{name}.toml").read_text())["base"]["digests"]
        for platform, pin in digests.items():
            yield name, platform, pin


@pytest.mark.parametrize(("name", "platform", "pin"), [pytest.param(*pin, id=f"{pin[0]}-{pin[1]}") for pin in pins()])
def test_a_digest_says_how_it_was_seen(name: str, platform: str, pin: dict[str, Any]) -> None:
    if pin["digest"] == UNRESOLVED:
        assert pin["seen"].startswith("nowhere yet")
    else:
        assert pin["seen"].startswith(("second-hand: ", "the registry, on "))


@pytest.mark.parametrize(
    "name",
    ["cuda", "cuda12", "cuda_tf", "rocm", "rocm7", "rocm_tf", "xpu", "hpu", "cpu_vllm", "cuda_vllm", "rocm_vllm"],
)
def test_what_is_pinned_plans_on_the_vendor_s_base(name: str, site: Settings) -> None:
    plan = make_plan(name, replace(site, bases="pinned"))
    plan.require_resolved()
    assert plan.base.pull == f"{plan.recipe.base.image}@{plan.base.digest}" and not plan.base.stand_in
    assert plan.lock_hash and plan.labels()


@pytest.mark.parametrize("name", ["xpu_ipex", "ipu_tf", "ipu_sdk32"])
def test_what_nobody_has_seen_is_refused_with_the_way_to_pin_it(name: str) -> None:
    with refused(UnbuildableError, "base-unresolved") as caught:
        make_plan(name, load_settings(bases="pinned")).require_resolved()
    assert f"recipe.pin --update --name {name}" in caught.value.remedy


def test_upstream_pytorch_for_xpus_brings_one_release_of_the_oneapi_runtime() -> None:
    wheels = {wheel.name: wheel for wheel in read_lock(load_recipe("xpu").lock(Target("3.12", "x86_64")))}
    assert wheels["torch"].version == "2.14.0+xpu" and {"triton-xpu", "oneccl", "umf"} <= wheels.keys()
    assert {wheels[name].version for name in ONEAPI} == {"2026.1.0"}
    assert load_recipe("xpu").environment["LD_LIBRARY_PATH"] == "/sifmark-site/lib"


def test_a_python_without_these_wheels_is_refused_with_a_way_on(site: Settings) -> None:
    plan = make_plan("xpu", replace(site, bases="pinned"))
    with refused(UnbuildableError, "lock-missing") as caught:
        _ = replace(plan, base=replace(plan.base, python="3.13")).lock_hash
    assert "recipe.lock xpu --python 3.13" in caught.value.remedy
