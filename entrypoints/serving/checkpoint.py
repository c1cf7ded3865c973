"""The network of a card as engines read it: `config.json` and `model.safetensors`, as Hugging Face's Llama has them.

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

from entrypoints.contract.cards import head_sizes
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula

CONFIGURATION, WEIGHTS = "config.json", "model.safetensors"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

Tensor = Tuple[str, Tuple[int, ...]]


def parameters(model: Mapping[str, Any]) -> int:
    """Return the parameters of a card's `problem.model`."""
    return sum(math.prod(shape) for _, shape in tensors(model))


def tensors(model: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the names and shapes of the weights of a card's `problem.model`, outputs before inputs."""
    width, inner = model["width"], model["feed_forward"]
    heads, kv_heads, size = head_sizes(model)
    yield "model.embed_tokens.weight", (model["vocabulary"], width)
    for number in range(model["layers"]):
        layer = f"model.layers.{number}."
        yield f"{layer}input_layernorm.weight", (width,)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows * size, width)
        yield f"{layer}self_attn.o_proj.weight", (width, heads * size)
        yield f"{layer}post_attention_layernorm.weight", (width,)
        yield f"{layer}mlp.gate_proj.weight", (inner, width)
        yield f"{layer}mlp.up_proj.weight", (inner, width)
        yield f"{layer}mlp.down_proj.weight", (width, inner)
    yield "model.norm.weight", (width,)
    if not model["head"]["tied"]:
        yield "lm_head.weight", (model["vocabulary"], width)


def configuration(model: Mapping[str, Any], precision: str, longest: int) -> dict[str, Any]:
    """Return the `config.json` of a card's `problem.model`, for texts of at most `longest` tokens.

    Raises RunError (`unsupported`) for a network that is no Llama, and for a precision that engines have no name for.
    """
    if model["architecture"] != "decoder" or model["activation"] != "swiglu" or "experts" in model:
        raise RunError("unsupported", "--task serving: engines are given networks of the Llama family only")
    if precision not in DTYPES:
        raise RunError("unsupported", f"--precision {precision}: engines serve in {', '.join(DTYPES)}")
    heads, kv_heads, size = head_sizes(model)
    positions = model["positions"]
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": positions["base"]}
    if "scaling" in positions:
        rule = positions["scaling"]
        rope.update(rope_type="llama3", factor=rule["factor"], original_max_position_embeddings=rule["original"])
        rope.update(low_freq_factor=rule["low"], high_freq_factor=rule["high"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model["width"],
        "intermediate_size": model["feed_forward"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "vocab_size": model["vocabulary"],
        "max_position_embeddings": max(longest, 2 * positions.get("scaling", {}).get("original", 0)),
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
            stream.write(formula.weight(name, shape).astype("<f4").tobytes())


def of_ours(name: str, model: Mapping[str, Any], weight_of: Any) -> Any:
    """Return one weight of our own network (workloads/pytorch/decoder.py) as a NumPy array, from those of the file.

    `weight_of` returns the weight of a name and shape. Ours has queries, keys and values in one matrix, group by group.
    """
    shapes = dict(tensors(model))

    def read(theirs: str) -> Any:
        return weight_of(theirs, shapes[theirs])

    layer, _, _ = name.rpartition(".")
    if layer in OTHERS:
        tied = layer == "head.decoder" and model["head"]["tied"]
        return read(f"{OTHERS['embedding.tokens' if tied else layer]}.weight")
    _, number, part = layer.split(".", 2)
    prefix = f"model.layers.{number}."
    if part != "attention.query_key_value":
        return read(f"{prefix}{BLOCKS[part]}.weight")
    by_head = (head_sizes(model).kv_heads, -1, head_sizes(model).size, model["width"])
    parts = [read(f"{prefix}self_attn.{which}_proj.weight").reshape(by_head) for which in "qkv"]
    return np.concatenate(parts, axis=1).reshape(-1, model["width"])


OTHERS = {
    "embedding.tokens": "model.embed_tokens",
    "head.normalisation": "model.norm",
    "head.decoder": "lm_head",
}
BLOCKS = {
    "attention_normalisation": "input_layernorm",
    "attention.project": "self_attn.o_proj",
    "feed_forward_normalisation": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.widen": "mlp.up_proj",
    "feed_forward.narrow": "mlp.down_proj",
}
