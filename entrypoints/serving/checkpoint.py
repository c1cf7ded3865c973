"""A card's network as engines read it: `config.json` and `model.safetensors`, as Hugging Face has Llama and gpt-oss.

A file of safetensors is eight bytes with the length of a header (little-endian), the header as JSON, and the numbers
one tensor after the other (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Tuple

import numpy as np

from entrypoints.contract.cards import attention_windows, head_sizes
from entrypoints.contract.choices import FP8
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula

CONFIGURATION, WEIGHTS = "config.json", "model.safetensors"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", FP8: "bfloat16"}  # FP8 is made of weights in bf16

Tensor = Tuple[str, Tuple[int, ...]]


def parameters(model: Mapping[str, Any]) -> int:
    """Return the parameters of a card's `problem.model`."""
    return sum(math.prod(shape) for _, shape in tensors(model))


def tensors(model: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the names and shapes of the weights of a card's `problem.model`, outputs before inputs."""
    width, inner = model["width"], model["feed_forward"]
    heads, kv_heads, size = head_sizes(model)
    biased, experts = model.get("biases", False), model.get("experts", {}).get("count")
    yield "model.embed_tokens.weight", (model["vocabulary"], width)
    for number in range(model["layers"]):
        layer = f"model.layers.{number}."
        yield f"{layer}input_layernorm.weight", (width,)
        projections = (("q", heads * size, width), ("k", kv_heads * size, width), ("v", kv_heads * size, width))
        for name, rows, columns in (*projections, ("o", width, heads * size)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, columns)
            if biased:
                yield f"{layer}self_attn.{name}_proj.bias", (rows,)
        if model.get("sinks"):
            yield f"{layer}self_attn.sinks", (heads,)
        yield f"{layer}post_attention_layernorm.weight", (width,)
        if experts:
            yield f"{layer}mlp.router.weight", (experts, width)
            yield f"{layer}mlp.router.bias", (experts,)
            yield f"{layer}mlp.experts.gate_up_proj", (experts, width, 2 * inner)  # inputs first
            yield f"{layer}mlp.experts.gate_up_proj_bias", (experts, 2 * inner)
            yield f"{layer}mlp.experts.down_proj", (experts, inner, width)
            yield f"{layer}mlp.experts.down_proj_bias", (experts, width)
            continue
        yield f"{layer}mlp.gate_proj.weight", (inner, width)
        yield f"{layer}mlp.up_proj.weight", (inner, width)
        yield f"{layer}mlp.down_proj.weight", (width, inner)
    yield "model.norm.weight", (width,)
    if not model["head"]["tied"]:
        yield "lm_head.weight", (model["vocabulary"], width)


def configuration(model: Mapping[str, Any], precision: str, longest: int) -> dict[str, Any]:
    """Return the `config.json` of a card's `problem.model`, for texts of at most `longest` tokens.

    Raises RunError (`unsupported`) for a network that is neither a Llama nor gpt-oss, and for a precision that engines
    have no name for.
    """
    if (model["activation"], "experts" in model) not in (("swiglu", False), ("swiglu_clamped", True)):
        raise RunError("unsupported", "--task serving: engines are given Llama and gpt-oss only")
    if precision not in DTYPES:
        raise RunError("unsupported", f"--precision {precision}: engines serve in {', '.join(DTYPES)}")
    heads, kv_heads, size = head_sizes(model)
    positions = model["positions"]
    rope = rotary(positions)
    return {
        **(gpt_oss(model) if "experts" in model else {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}),
        "hidden_size": model["width"],
        "intermediate_size": model["feed_forward"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "vocab_size": model["vocabulary"],
        "max_position_embeddings": max(longest, places(positions)),
        "rms_norm_eps": model["normalisation"]["epsilon"],
        "hidden_act": "silu",
        "tie_word_embeddings": model["head"]["tied"],
        "rope_parameters": rope,
        "rope_theta": positions["base"],  # as libraries before transformers 5 read the two
        **({"rope_scaling": rope} if "scaling" in positions else {}),
        "dtype": DTYPES[precision],
        "torch_dtype": DTYPES[precision],
        "bos_token_id": None,
        "eos_token_id": None,
    }


def gpt_oss(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the `config.json` of gpt-oss has and that of a Llama has not."""
    experts = model["experts"]
    kinds = ["sliding_attention" if window else "full_attention" for window in attention_windows(model)]
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_local_experts": experts["count"],
        "num_experts_per_tok": experts["per_token"],
        "swiglu_limit": experts["limit"],
        "sliding_window": model["window"],
        "layer_types": kinds,
        "attention_bias": model["biases"],
    }


def places(positions: Mapping[str, Any]) -> int:
    """Return the places for which rotary positions are scaled; 0 if they are not."""
    rule = positions.get("scaling")
    if rule is None:
        return 0
    return int(rule["original"] * (rule["factor"] if rule["kind"] == "yarn" else 2))


def rotary(positions: Mapping[str, Any]) -> dict[str, Any]:
    """Return rotary positions of a card as `config.json` has them."""
    rule = positions.get("scaling")
    if rule is None:
        return {"rope_type": "default", "rope_theta": positions["base"]}
    shared = {"rope_type": rule["kind"], "rope_theta": positions["base"], "factor": rule["factor"]}
    shared["original_max_position_embeddings"] = rule["original"]
    if rule["kind"] == "yarn":
        return {**shared, "beta_slow": rule["low"], "beta_fast": rule["high"], "truncate": False}
    return {**shared, "low_freq_factor": rule["low"], "high_freq_factor": rule["high"]}


def write(folder: Path, model: Mapping[str, Any], precision: str, longest: int) -> None:
    """Write `config.json` into a folder."""
    text = json.dumps(configuration(model, precision, longest), indent=1)
    (folder / CONFIGURATION).write_text(text, "utf-8")


def write_formula_weights(folder: Path, model: Mapping[str, Any]) -> None:
    """Write weights made by our formula, in fp32, into a folder."""
    write_safetensors(folder / WEIGHTS, tensors(model))


def write_safetensors(path: Path, named: Iterable[Tensor]) -> None:
    """Write tensors whose numbers follow from their names."""
    header, end, listed = {}, 0, list(named)
    for name, shape in listed:
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, shape in listed:
            stream.write(weight(name, shape).astype("<f4").tobytes())


def weight(name: str, shape: tuple[int, ...]) -> Any:
    """Return a weight of the file as a NumPy array, by our formula. Of experts, which have inputs first, it is that of
    their matrices one below another, as ours are."""
    if len(shape) < 3:
        return formula.weight(name, shape)
    experts, inputs, outputs = shape
    return formula.weight(name, (experts * outputs, inputs)).reshape(experts, outputs, inputs).transpose(0, 2, 1)


def of_ours(name: str, model: Mapping[str, Any], weight_of: Any) -> Any:
    """Return one weight of our own network (workloads/pytorch/decoder.py) as a NumPy array, from those of the file.

    `weight_of` returns the weight of a name and shape. Ours has queries, keys and values in one matrix, group by group,
    and the experts' one below another, with the rows of gates before the others; the file has them by turns.
    """
    shapes = dict(tensors(model))

    def read(theirs: str) -> Any:
        return weight_of(theirs, shapes[theirs])

    layer, _, kind = name.rpartition(".")
    if layer in OTHERS:
        tied = layer == "head.decoder" and model["head"]["tied"]
        return read(f"{OTHERS['embedding.tokens' if tied else layer]}.weight")
    _, number, part = layer.split(".", 2)
    prefix = f"model.layers.{number}."
    if "experts" in model and part in EXPERTS:
        made = read(f"{prefix}mlp.experts.{EXPERTS[part]}{'_bias' if kind == 'bias' else ''}")
        rows = made.transpose(0, 2, 1) if kind == "weight" else made  # (experts, outputs, ...)
        if part == "feed_forward.widen":
            rows = np.concatenate([rows[:, ::2], rows[:, 1::2]], axis=1)
        return rows.reshape(-1, *rows.shape[2:])
    if part != "attention.query_key_value":
        return read(f"{prefix}{BLOCKS[part]}.{kind}")
    inputs = (model["width"],) if kind == "weight" else ()
    by_head = (head_sizes(model).kv_heads, -1, head_sizes(model).size, *inputs)
    parts = [read(f"{prefix}self_attn.{which}_proj.{kind}").reshape(by_head) for which in "qkv"]
    return np.concatenate(parts, axis=1).reshape(-1, *inputs)


OTHERS = {
    "embedding.tokens": "model.embed_tokens",
    "head.normalisation": "model.norm",
    "head.decoder": "lm_head",
}
BLOCKS = {
    "attention_normalisation": "input_layernorm",
    "attention": "self_attn",  # sinks
    "attention.project": "self_attn.o_proj",
    "feed_forward_normalisation": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.widen": "mlp.up_proj",
    "feed_forward.narrow": "mlp.down_proj",
    "feed_forward.router": "mlp.router",
}
EXPERTS = {"feed_forward.widen": "gate_up_proj", "feed_forward.narrow": "down_proj"}
