"""Results of the task serving, compared: each setting of the load is a field, and other engines are other platforms."""

from typing import Any

from documents import result

from sifmark.results.comparison.observation import observe

LOAD = {"engine": "vllm", "arrivals": "poisson", "rate": 4.0, "burstiness": None, "concurrency": None,
        "prompt_lengths": [128, 128], "answer_lengths": [8, 8], "first_token_limit": 2.0, "token_limit": 0.1,
        "find_goodput": False}  # fmt: skip


def fields(**load: Any) -> dict[str, Any]:
    document = result()
    document["workload"]["task"] = "serving"
    document["configuration"]["serving"] = {**LOAD, **load}
    return observe(document, "side", "file", (), {}).fields


def test_settings_of_a_load_separate_rows() -> None:
    slow, fast = fields(), fields(rate=8.0, prompt_lengths=[128, 256])
    assert slow["configuration.serving.rate"] == 4.0
    assert {name for name in slow if slow[name] != fast[name]} == {
        "configuration.serving.rate",
        "configuration.serving.prompt_lengths",
    }


def test_a_result_without_an_engine_has_none_of_them() -> None:
    assert not [name for name in observe(result(), "side", "file", (), {}).fields if "serving" in name]
