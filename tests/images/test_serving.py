"""The image with vLLM, on a stand-in base that has a build of it: a server of texts without a network."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from images.sites import NO_NETWORK, Site, answer, call, make_site

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import load_settings, with_options
from sifmark.engines.apptainer.engine import user_flags
from sifmark.recipes.plan import make_plan

RECIPE = "cpu_vllm"
# Processes of an engine talk to each other over the loopback interface, which a new namespace has, but down.
WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$0" "$@"']


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site with the images of cpu_vllm; a base that could not be made here skips its tests."""
    try:
        make_plan(RECIPE, with_options(load_settings(), bases="stand-in"))
    except SifmarkError as error:
        pytest.skip(error.cause)
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    site = make_site(folder)
    site.inv("build", RECIPE)
    yield site
    shutil.rmtree(folder, ignore_errors=True)


def serve(site: Site, workload: str, *words: str) -> dict[str, Any]:
    """The result of a run that sees neither the host's files nor a network."""
    if os.geteuid() != 0:
        pytest.skip("only root may set up the loopback interface of a namespace")
    alone = [*NO_NETWORK, *WITH_LOOPBACK, "apptainer", "run", *user_flags(), "--containall", "--cleanenv"]
    done = call([*alone, site.dist / f"{workload}-{RECIPE}.sif", "--task", "serving", *words])
    return answer(done)


@pytest.mark.matrix("apptainer", recipe=RECIPE)
def test_it_is_what_it_says_and_the_base_is_untouched(site: Site) -> None:
    said = site.inv("verify", f"llama_1b-{RECIPE}").stdout
    assert "unchanged files of the base" in said and "failed" not in said


@pytest.mark.matrix("apptainer", recipe=RECIPE)
@pytest.mark.parametrize("workload", ["llama_1b", "gpt_oss_20b"])
def test_vllm_serves_an_open_load_without_a_network(site: Site, workload: str) -> None:
    result = serve(site, workload, "--smoke", "--rate", "5", "--steps", "30")
    assert result["status"]["state"] == "completed", result["status"]
    part = result["serving"]
    assert part["engine"]["name"] == "vllm" and part["engine"]["version"].startswith("0.30.0")
    assert part["engine"]["settings"]["prefix_caching"] is False
    assert part["engine"]["settings"]["expert_routing"] == "by the weights"
    assert part["count"] == 29 and part["new_tokens"] == 29 * 8
    assert result["metrics"]["time_per_output_token_p50"]["value"] > 0
    assert result["provenance"]["stand_in"] is True


def test_the_check_of_vllm_passes_before_a_whole_network_is_served(site: Site) -> None:
    result = serve(site, "llama_1b", "--lengths", "16/4", "--concurrency", "2", "--steps", "6", "--warmup-steps", "2")
    assert result["status"]["state"] == "completed", result["status"]
    assert result["numerics"]["state"] == "passed"
    assert [each["precision"] for each in result["numerics"]["precisions"]] == ["fp32", "bf16"]
