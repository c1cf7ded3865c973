"""The networks of Hugging Face's diffusers for the cards: what ours are held against."""

from __future__ import annotations

import torch
import written  # noqa: F401 - it lets torchvision be imported, which diffusers wants through transformers
from diffusers import DiTTransformer2DModel, FluxTransformer2DModel
from torch import nn

TOLD = {"time.first": "timestep_embedder.linear_1", "time.second": "timestep_embedder.linear_2"}
TEXT = {"subject.first": "text_embedder.linear_1", "subject.second": "text_embedder.linear_2"}
CLASS = {"subject": "class_embedder.embedding_table"}
BLOCK = {
    "modulation.project": "norm1.linear",
    "attention.project": "attn.to_out.0",
    "attention.query_normalisation": "attn.norm_q",
    "attention.key_normalisation": "attn.norm_k",
    "widen": "ff.net.0.proj",
    "narrow": "ff.net.2",
}
OF_TEXT = {
    "modulation.project": "norm1_context.linear",
    "attention.project": "attn.to_add_out",
    "attention.query_normalisation": "attn.norm_added_q",
    "attention.key_normalisation": "attn.norm_added_k",
    "widen": "ff_context.net.0.proj",
    "narrow": "ff_context.net.2",
}
SINGLE = {**BLOCK, "modulation.project": "norm.linear", "attention.project": "proj_out"}


class Dit(nn.Module):
    """DiT, with latent images that have their noise."""

    def __init__(self, model, ours):
        super().__init__()
        channels, self.patch = model["latents"][0], model["patch"]
        self.layers, self.channels = model["layers"], 2 * channels
        self.library = DiTTransformer2DModel(
            num_attention_heads=model["heads"],
            attention_head_dim=model["width"] // model["heads"],
            in_channels=channels,
            out_channels=self.channels,
            num_layers=self.layers,
            sample_size=model["latents"][1],
            patch_size=self.patch,
            num_embeds_ada_norm=model["condition"]["classes"],
            norm_eps=model["normalisation"]["epsilon"],
        )
        for block in self.library.transformer_blocks:  # its waves are not those of DiT's own files
            block.norm1.emb.time_proj.downscale_freq_shift = 0
        rows = [ours.pop(f"head.{layer}.{kind}") for kind in ("weight", "bias") for layer in ("project", "variance")]
        keys = self.library.load_state_dict(dict(self.renamed(ours)), strict=False)
        assert keys.unexpected_keys == ["pos_embed.pos_embed"], keys
        assert keys.missing_keys == ["proj_out_2.weight", "proj_out_2.bias"], keys
        with torch.no_grad():
            self.library.proj_out_2.weight.copy_(self.channels_last(torch.cat(rows[:2])))
            self.library.proj_out_2.bias.copy_(self.channels_last(torch.cat(rows[2:])))
        assert torch.equal(self.library.pos_embed.pos_embed[0], ours["embedding.places"].double())

    def channels_last(self, rows):
        """Rows of a patch that are of a channel each, as theirs, which are of a place each."""
        return rows.view(self.channels, self.patch**2, -1).transpose(0, 1).reshape(rows.shape)

    def renamed(self, ours):
        for name, value in ours.items():
            layer, _, kind = name.rpartition(".")
            if name == "embedding.places":
                yield "pos_embed.pos_embed", value[None]
            elif layer == "embedding.project":
                yield f"pos_embed.proj.{kind}", value
            elif layer == "head.modulation.project":
                yield f"proj_out_1.{kind}", value
            elif layer.startswith("condition."):  # which each block has again
                part = {**TOLD, **CLASS}[layer.partition(".")[2]]
                for block in range(self.layers):
                    yield f"transformer_blocks.{block}.norm1.emb.{part}.{kind}", value
            else:
                _, block, part = layer.split(".", 2)
                if part == "attention.query_key_value":
                    for which, share in zip("qkv", value.chunk(3)):
                        yield f"transformer_blocks.{block}.attn1.to_{which}.{kind}", share
                else:
                    yield f"transformer_blocks.{block}.{BLOCK[part].replace('attn.', 'attn1.')}.{kind}", value

    def forward(self, noisy, times, labels):
        return self.library(noisy, timestep=times, class_labels=labels).sample


class Flux(nn.Module):
    """FLUX.1, with latent images that have their noise."""

    def __init__(self, model, ours):
        super().__init__()
        rule = model["condition"]
        self.model, self.size = model, model["width"] // model["heads"]
        self.library = FluxTransformer2DModel(
            in_channels=model["latents"][0] * model["patch"] ** 2,
            num_layers=model["double_layers"],
            num_single_layers=model["single_layers"],
            attention_head_dim=self.size,
            num_attention_heads=model["heads"],
            joint_attention_dim=rule["text_width"],
            pooled_projection_dim=rule["vector"],
            axes_dims_rope=tuple(model["positions"]["axes"]),
        )
        self.library.load_state_dict(dict(self.renamed(ours)))

    def neighbours(self, rows):
        """Rows of heads whose halves are paired, as theirs, of which neighbours are."""
        halves = rows.view(-1, 2, self.size // 2, *rows.shape[1:])
        return halves.transpose(1, 2).reshape(rows.shape)

    def renamed(self, ours):
        for name, value in ours.items():
            layer, _, kind = name.rpartition(".")
            if layer == "embedding.project":
                yield f"x_embedder.{kind}", value.flatten(1) if value.dim() > 1 else value
            elif layer == "text":
                yield f"context_embedder.{kind}", value
            elif layer == "head.modulation.project":  # whose scale comes first there
                yield f"norm_out.linear.{kind}", torch.cat(value.chunk(2)[::-1])
            elif layer == "head.project":
                yield f"proj_out.{kind}", value
            elif layer.startswith("condition."):
                yield f"time_text_embed.{ {**TOLD, **TEXT}[layer.partition('.')[2]] }.{kind}", value
            else:
                yield from self.of_block(layer, kind, value)

    def of_block(self, layer, kind, value):
        blocks, number, part = layer.split(".", 2)
        to, names = f"single_transformer_blocks.{number}.", SINGLE
        if blocks == "blocks":
            which, part = part.split(".", 1)
            to, names = f"transformer_blocks.{number}.", BLOCK if which == "image" else OF_TEXT
        if part != "attention.query_key_value":
            turned = part in ("attention.query_normalisation", "attention.key_normalisation")
            yield f"{to}{names[part]}.{kind}", self.neighbours(value) if turned else value
            return
        *heads, rest = value.split([*[self.model["width"]] * 3, len(value) - 3 * self.model["width"]])
        for which, share in zip("qkv", heads):
            to_part = f"attn.add_{which}_proj" if names is OF_TEXT else f"attn.to_{which}"
            yield f"{to}{to_part}.{kind}", share if which == "v" else self.neighbours(share)
        if len(rest):
            yield f"{to}proj_mlp.{kind}", rest

    def forward(self, noisy, times, text, vector):
        samples, channels, height, width = noisy.shape
        size = self.model["patch"]
        rows, columns = height // size, width // size
        cut = noisy.view(samples, channels, rows, size, columns, size).permute(0, 2, 4, 1, 3, 5)
        places = torch.cartesian_prod(torch.zeros(1), torch.arange(rows).float(), torch.arange(columns).float())
        nowhere = torch.zeros(text.shape[1], 3)
        predicted = self.library(
            cut.reshape(samples, rows * columns, -1), text, vector, times, img_ids=places, txt_ids=nowhere
        ).sample
        image = predicted.view(samples, rows, columns, channels, size, size).permute(0, 3, 1, 4, 2, 5)
        return image.reshape(noisy.shape)


NETWORKS = {"dit": Dit, "flux": Flux}
