"""Runs of the task `serving`: transformers' engine on this CPU, its check, and engines that fail."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from program import ROOT, Program, checked, lay

from entrypoints.contract import cards
from entrypoints.contract.reference import FIRST_TOKEN, OF_ENGINES
from entrypoints.serving import checkpoint
from entrypoints.serving.engine import EngineSettings
from entrypoints.worker import serving_check, serving_run

AROUND = ("--task", "serving", "--smoke", "--meter", "none", "--output", "-")
HERE = importlib.util.find_spec("transformers") is not None
needs_transformers = pytest.mark.skipif(not HERE, reason="transformers is not installed here")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A program whose vLLM is planted faults."""
    tree = lay(tmp_path_factory.mktemp("serving") / "sifmark", framework="pytorch", device="cpu", recipe="cpu")
    source = Path(__file__).resolve().parents[1] / "support" / "planted_engine.py"
    shutil.copy(str(source), str(tree / "entrypoints" / "serving" / "engines" / "vllm.py"))
    return Program(tree, tmp_path_factory.mktemp("folder"))


def run(planted, *arguments, fault="", **environment):
    load = ("--engine", "vllm", "--rate", "100", "--steps", "60", "--warmup-steps", "5")
    code, output, errors = planted.run("llama_1b", *AROUND, *load, *arguments, SERVING_FAULT=fault, **environment)
    assert output, errors
    document = checked(output)
    assert document["status"]["exit_code"] == code
    return document


@needs_transformers
def test_transformers_serves_an_open_load(tmp_path):
    document = Program(ROOT, tmp_path).result(
        "llama_1b", *AROUND, "--rate", "20", "--steps", "30", "--lengths", "4-40/2-6"
    )
    assert document["status"]["state"] == "completed"
    assert document["workload"]["title"].endswith("reduced")
    part = document["serving"]
    assert part["engine"]["name"] == "transformers"
    assert part["engine"]["settings"]["prefix_caching"] is False
    assert part["count"] == 29 == len(part["requests"]["due"])
    assert document["metrics"]["output_token_throughput"]["value"] > 0
    assert document["metrics"]["time_per_output_token_p50"]["value"] > 0
    assert "662" in document["metrics"]["time_to_first_token_p99"]["reason"]


@needs_transformers
@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("llama_1b", "none"),
        pytest.param("llama_1b", "scaling", marks=pytest.mark.full),
        ("llama_1b", "base"),
        ("gpt_oss_20b", "none"),
        pytest.param("gpt_oss_20b", "base", marks=pytest.mark.full),
        pytest.param("gpt_oss_20b", "window", marks=pytest.mark.full),
        pytest.param("gpt_oss_20b", "limit", marks=pytest.mark.full),
        pytest.param("gpt_oss_20b", "per_token", marks=pytest.mark.full),
    ],
)
def test_the_check_of_an_engine_finds_another_network(name, mistake):
    own = serving_check.checked_card(cards.load()[name])
    served = copy.deepcopy(dict(own.problem))
    model = served["model"]
    positions = model["positions"]
    if mistake == "scaling":
        del positions["scaling"]
    elif mistake == "base":
        positions["base"] = 10000.0
    elif mistake == "window":
        model["window"] *= 2
    elif mistake == "limit":
        model["experts"]["limit"] = 0.75
    elif mistake == "per_token":
        model["experts"]["per_token"] = 1
    answers: list = []
    precision = "bf16" if name == "llama_1b" else "fp32"  # in bf16 a token may get to another expert
    with serving_run.model_folder(own._replace(problem=served), precision, serving_check.ROOM) as folder:
        checkpoint.write_formula_weights(folder, own.problem["model"])
        settings = EngineSettings(str(folder), False, "cpu", precision, None, 1, serving_check.ROOM, 0)
        engine = serving_run.load_engine("transformers")
        asyncio.run(serving_check._ask(engine, settings, answers, own.problem["model"]["vocabulary"]))
    deviation = serving_check.deviation(answers, serving_check.expected(own))
    tolerance = OF_ENGINES.tolerances[precision][FIRST_TOKEN]
    assert deviation < tolerance / 2 if mistake == "none" else deviation > 2 * tolerance


def test_the_file_of_weights_is_read_by_the_library_of_its_format(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    model = serving_check.checked_card(cards.load()["llama_70b"]).problem["model"]
    checkpoint.write_formula_weights(tmp_path, model)
    read = safetensors.load_file(str(tmp_path / checkpoint.WEIGHTS))
    assert {name: tensor.shape for name, tensor in read.items()} == dict(checkpoint.tensors(model))


@pytest.mark.parametrize("name", ["llama_1b", "llama_8b", "llama_70b", "gpt_oss_20b", "gpt_oss_120b"])
def test_files_have_as_many_parameters_as_the_card_says(name):
    problem = cards.load()[name].problem
    assert checkpoint.parameters(problem["model"]) == problem["parameters"]


@pytest.mark.parametrize(
    ("fault", "state", "words"),
    [
        ("dies", "crashed", "SIGKILL"),
        pytest.param("raises", "crashed", "a fault of the engine", marks=pytest.mark.full),
        pytest.param("memory", "out_of_memory", "out of memory", marks=pytest.mark.full),
        pytest.param("start", "out_of_memory", "no room", marks=pytest.mark.full),
        pytest.param("refuses", "crashed", "longer than 16", marks=pytest.mark.full),
    ],
)
def test_an_engine_that_fails_leaves_a_valid_result(planted, fault, state, words):
    document = run(planted, fault=fault)
    assert document["status"]["state"] == state
    assert words in document["status"]["message"]
    if fault != "dies":  # which may take answers with it
        assert (document["steps"]["count"] >= 5) == (fault != "start")


def test_a_stall_of_the_engine_shows_in_the_requests_that_were_due_meanwhile(planted):
    document = run(planted, fault="stalls")
    assert document["status"]["state"] == "completed"
    firsts = document["serving"]["requests"]["time_to_first_token"]
    assert max(firsts) > 0.4
    assert sum(first > 0.1 for first in firsts) > 20  # due in the 0.5 s, at 100/s
    assert document["metrics"]["time_to_first_token_p50"]["value"] is None  # it stood still the client, too
    assert "late" in document["metrics"]["time_to_first_token_p50"]["reason"]


@pytest.mark.full
@pytest.mark.parametrize("fault", ["", *(name for name in ("hangs", "child"))])
def test_a_run_that_is_stopped_leaves_what_it_measured_and_no_process(planted, tmp_path, fault):
    long = ("--engine", "vllm", "--rate", "20", "--steps", "100000", "--warmup-steps", "5")
    process = planted.start("llama_1b", *AROUND, *long, SERVING_FAULT=fault, MARK=str(tmp_path))
    deadline = time.monotonic() + 60
    while "measuring" not in (process.stderr.readline()) and time.monotonic() < deadline:
        pass
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    document = checked(output)
    assert document["status"]["state"] == "interrupted"
    assert document["steps"]["count"] >= 5
    assert not [each for each in Path("/proc").glob("[0-9]*/environ") if marked(each, str(tmp_path))]


def marked(environ, mark):
    try:
        return os.fsencode(f"MARK={mark}") in environ.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--task", "serving", "--rate", "1", "--concurrency", "2"), "--rate with --concurrency"),
        (("--task", "serving", "--find-goodput"), "add --rate"),
        (("--task", "serving", "--find-goodput", "--rate", "1", "--steps", "100"), "prove no 99th percentile"),
        (("--task", "serving", "--batch-size", "2"), "--batch-size"),
        (("--task", "serving", "--duration", "5"), "--duration"),
        (("--task", "inference", "--rate", "1"), "--rate is for --task serving"),
        (("--task", "serving", "--lengths", "9-2/4"), "9-2/4"),
        (("--task", "serving", "--arrivals", "gamma", "--rate", "1"), "gamma"),
    ],
)
def test_a_load_that_contradicts_itself_is_refused(tmp_path, arguments, words):
    code, output, errors = Program(ROOT, tmp_path).run("llama_1b", *arguments)
    assert (code, output) == (2, "")
    assert words in errors
