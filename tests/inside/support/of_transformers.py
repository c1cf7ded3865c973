"""The transformers of Hugging Face's library for the cards: what our networks are held against."""

from __future__ import annotations

import torch
import transformers
from torch import nn

BLOCKS = {
    "gpt2": {
        "attention_normalisation": "ln_1",
        "attention.query_key_value": "attn.c_attn",
        "attention.project": "attn.c_proj",
        "feed_forward_normalisation": "ln_2",
        "widen": "mlp.c_fc",
        "narrow": "mlp.c_proj",
    },
    "llama": {
        "attention_normalisation": "input_layernorm",
        "attention.project": "self_attn.o_proj",
        "attention.query_normalisation": "self_attn.q_norm",
        "attention.key_normalisation": "self_attn.k_norm",
        "feed_forward_normalisation": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.widen": "mlp.up_proj",
        "feed_forward.narrow": "mlp.down_proj",
    },
    "bert": {
        "attention.project": "attention.output.dense",
        "attention_normalisation": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "feed_forward_normalisation": "output.LayerNorm",
    },
}
OTHERS = {
    "gpt2": {
        "embedding.tokens": "transformer.wte",
        "embedding.places": "transformer.wpe",
        "head.normalisation": "transformer.ln_f",
        "head.decoder": "lm_head",
    },
    "llama": {
        "embedding.tokens": "model.embed_tokens",
        "head.normalisation": "model.norm",
        "head.decoder": "lm_head",
    },
    "bert": {
        "embedding.tokens": "bert.embeddings.word_embeddings",
        "embedding.places": "bert.embeddings.position_embeddings",
        "embedding.segments": "bert.embeddings.token_type_embeddings",
        "embedding.normalisation": "bert.embeddings.LayerNorm",
        "head.ends": "qa_outputs",
        "head.transform": "cls.predictions.transform.dense",
        "head.normalisation": "cls.predictions.transform.LayerNorm",
        "head.decoder": "cls.predictions.decoder",
        "head.pool": "bert.pooler.dense",
        "head.follows": "cls.seq_relationship",
    },
}


MOST_ROTARY = 131072  # places of a rotary model, which has no table of them: more than any card's


class Network(nn.Module):
    """The library's network of a card, with inputs and outputs as ours."""

    def __init__(self, card):
        super().__init__()
        model = card.problem["model"]
        self.head = model["head"]["kind"]
        if card.family == "decoder":
            self.family, self.library = "llama", decoder(model)
        elif self.head == "next_token" and model["positions"]["kind"] == "rotary":
            self.family, self.library = "gpt_neox", transformers.GPTNeoXForCausalLM(gpt_neox(model))
        elif self.head == "next_token":
            self.family, self.library = "gpt2", transformers.GPT2LMHeadModel(gpt2(model))
        else:
            kinds = {"span": "BertForQuestionAnswering", "pretraining": "BertForPreTraining"}
            self.family, self.library = "bert", getattr(transformers, kinds[self.head])(bert(model))

    def forward(self, tokens, segments=None, places=None):
        if self.head == "next_token":
            return self.library(tokens, use_cache=False).logits
        attention_mask = (tokens != 0).long()
        output = self.library(tokens, attention_mask=attention_mask, token_type_ids=segments)
        if self.head == "span":
            return torch.stack([output.start_logits, output.end_logits], -1)
        return torch.take_along_dim(output.prediction_logits, places[:, :, None], 1), output.seq_relationship_logits

    def take(self, ours, adapter=None):
        """Our weights, by the library's names; what an adapter adds is added to them."""
        ours = merged(ours, adapter) if adapter else ours
        keys = self.library.load_state_dict(dict(self.renamed(ours)), strict=False)
        assert not keys.unexpected_keys, keys

    def renamed(self, ours):
        for name, value in ours.items():
            layer, _, kind = name.rpartition(".")
            if not layer.startswith("blocks."):
                yield f"{OTHERS[self.family][layer]}.{kind}", value
                continue
            _, number, part = layer.split(".", 2)
            if self.family == "gpt2":  # it keeps inputs first
                turned = value.t() if value.dim() == 2 else value
                yield f"transformer.h.{number}.{BLOCKS['gpt2'][part]}.{kind}", turned
            elif self.family == "llama":
                layer = f"model.layers.{number}."
                if part == "attention.query_key_value":
                    yield from self.by_heads(f"{layer}self_attn.", kind, value)
                elif hasattr(self.library.config, "num_experts_per_tok") and part.startswith("feed_forward."):
                    yield self.of_experts(f"{layer}mlp.", part.rpartition(".")[2], kind, value)
                elif kind == "sinks":
                    yield f"{layer}self_attn.sinks", value
                else:
                    yield f"{layer}{BLOCKS['llama'][part]}.{kind}", value
            elif part == "attention.query_key_value":
                for which, share in zip(("query", "key", "value"), value.chunk(3)):
                    yield f"bert.encoder.layer.{number}.attention.self.{which}.{kind}", share
            else:
                yield f"bert.encoder.layer.{number}.{BLOCKS['bert'][part]}.{kind}", value

    def by_heads(self, layer, kind, weight):
        """Queries, keys and values, which ours has group by group."""
        config = self.library.config
        sizes = [config.num_attention_heads // config.num_key_value_heads, 1, 1]
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        groups = weight.unflatten(0, (config.num_key_value_heads, sum(sizes), size)).split(sizes, 1)
        for which, share in zip("qkv", groups):
            yield f"{layer}{which}_proj.{kind}", share.flatten(0, 2)

    def of_experts(self, layer, part, kind, value):
        """Routers and experts. In gpt-oss inputs come first, and the rows of gates are between those of the others."""
        interleaved = self.library.config.model_type == "gpt_oss"
        if part == "router":
            return f"{layer}{'router' if interleaved else 'gate'}.{kind}", value
        experts = value.unflatten(0, (self.library.config.num_local_experts, -1))
        if interleaved and part == "widen":
            experts = torch.stack(experts.chunk(2, 1), 2).flatten(1, 2)
        turned = experts.transpose(1, 2) if interleaved and kind == "weight" else experts
        name = {"widen": "gate_up_proj", "narrow": "down_proj"}[part]
        return f"{layer}experts.{name}{'_bias' if kind == 'bias' else ''}", turned


def merged(ours, rule):
    """The same weights without adapters."""
    scale = rule["alpha"] / rule["rank"]
    products = {
        name.replace(".down.", "."): scale * ours[name.replace(".down.", ".up.")] @ value
        for name, value in ours.items()
        if ".down." in name
    }
    kept = {name: value for name, value in ours.items() if ".down." not in name and ".up." not in name}
    return {name: value + products.get(name, 0) for name, value in kept.items()}


def decoder(model):
    """The library's network of a decoder, whose attention and experts are written out."""
    experts = model.get("experts")
    if experts is None:
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**common(model)))
    shared = {
        **common(model),
        "num_experts_per_tok": experts["per_token"],
        "attn_implementation": "eager",
        "experts_implementation": "eager",
    }
    if "sinks" in model:
        kinds = ["sliding_attention", "full_attention"] * model["layers"]
        shared.update(num_local_experts=experts["count"], layer_types=kinds[: model["layers"]])
        shared.update(sliding_window=model["window"], swiglu_limit=experts["limit"], attention_bias=True)
        return transformers.GptOssForCausalLM(transformers.GptOssConfig(**shared))
    shared.update(num_experts=experts["count"], norm_topk_prob=experts["renormalised"])
    if model["query_key_normalisation"] == "whole":
        return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(**shared))
    shared.update(moe_intermediate_size=model["feed_forward"])
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**shared))


def common(model):
    """What all decoders of the library have."""
    return {
        "hidden_size": model["width"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": model["kv_heads"],
        "head_dim": model["head_size"],
        "intermediate_size": model["feed_forward"],
        "vocab_size": model["vocabulary"],
        "rms_norm_eps": model["normalisation"]["epsilon"],
        "tie_word_embeddings": model["head"]["tied"],
        "max_position_embeddings": MOST_ROTARY,
        "rope_parameters": rope(model["positions"]),
    }


def rope(positions):
    """Rotary positions, as the library says them."""
    if "scaling" not in positions:
        return {"rope_type": "default", "rope_theta": positions["base"]}
    rule = positions["scaling"]
    shared = {"rope_theta": positions["base"], "factor": rule["factor"]}
    shared["original_max_position_embeddings"] = rule["original"]
    if rule["kind"] == "llama3":
        bounds = {"low_freq_factor": rule["low"], "high_freq_factor": rule["high"]}
        return {**shared, **bounds, "rope_type": "llama3"}
    bounds = {"beta_slow": rule["low"], "beta_fast": rule["high"], "truncate": False}
    return {**shared, **bounds, "rope_type": "yarn"}


def gpt2(model):
    return transformers.GPT2Config(
        n_embd=model["width"],
        n_layer=model["layers"],
        n_head=model["heads"],
        n_inner=model["feed_forward"],
        vocab_size=model["vocabulary"],
        n_positions=model["positions"]["most"],
        activation_function="gelu_new",
        layer_norm_epsilon=model["normalisation"]["epsilon"],
        tie_word_embeddings=model["head"]["tied"],
        resid_pdrop=model["dropout"],
        embd_pdrop=model["dropout"],
        attn_pdrop=model["dropout"],
    )


def gpt_neox(model):
    return transformers.GPTNeoXConfig(
        hidden_size=model["width"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        intermediate_size=model["feed_forward"],
        vocab_size=model["vocabulary"],
        max_position_embeddings=MOST_ROTARY,
        rotary_pct=1.0,
        use_parallel_residual=False,
        hidden_act="gelu_new",
        layer_norm_eps=model["normalisation"]["epsilon"],
        tie_word_embeddings=model["head"]["tied"],
        hidden_dropout=model["dropout"],
        attention_dropout=model["dropout"],
    )


def bert(model):
    return transformers.BertConfig(
        hidden_size=model["width"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        intermediate_size=model["feed_forward"],
        vocab_size=model["vocabulary"],
        hidden_act="gelu",
        max_position_embeddings=model["positions"]["most"],
        layer_norm_eps=model["normalisation"]["epsilon"],
        hidden_dropout_prob=model["dropout"],
        attention_probs_dropout_prob=model["dropout"],
    )
