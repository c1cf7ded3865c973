"""Mistakes in how a step is done, whatever the network: batches, gradients, updates, rates and modes.

Each is a context in which our session makes it. `NOT_DETECTABLE` has those that the check cannot find, with the reason.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any
from unittest import mock

import torch
from torch import nn

from entrypoints.contract import session as contract
from entrypoints.devices.pytorch.shared.session import TorchSession
from entrypoints.workloads.pytorch import build, lstm, optimizers, transformer
from entrypoints.workloads.pytorch.layers import LazyLogits


def of_session(name, change):
    """A method of the session that is handed to `change` with its arguments, those by name already in it."""
    original = getattr(TorchSession, name)

    def changed(self, *given, **named):
        return change(self, functools.partial(original, **named), *given)

    return mock.patch.object(TorchSession, name, changed)


def batches(change):
    """What is trained on, made from the batch."""
    return of_session("train", lambda self, train, batch: train(self, change(batch)))


def every(tensors, change):
    """A tensor, or each of a tuple, changed."""
    return tuple(map(change, tensors)) if isinstance(tensors, tuple) else change(tensors)


def both(batch, change):
    return batch._replace(inputs=every(batch.inputs, change), targets=every(batch.targets, change))


def first_micro_batch_alone():
    return of_session("micro_batches", lambda self, divide, batch: divide(self, batch)[:1] * self.accumulation_steps)


def last_micro_batch_left_out():
    def divide(self, original, batch):
        parts = original(self, batch)
        return [*parts[:-1], parts[0]] if len(parts) > 1 else parts

    return of_session("micro_batches", divide)


def micro_batches_summed_up():
    def forward_backward(self, original, batch):
        times, self.accumulation_steps = self.accumulation_steps, 1
        try:
            return original(self, batch)
        finally:
            self.accumulation_steps = times

    return of_session("forward_backward", forward_backward)


def update_after_every_micro_batch():
    def forward_backward(self, original, batch):
        loss = original(self, batch)
        if self.accumulation_steps > 1:
            self.optimizer.step()
        return loss

    return of_session("forward_backward", forward_backward)


def gradients_of_the_last_micro_batch():
    def forward_backward(self, original, batch):
        self.optimizer.zero_grad()
        return original(self, batch)

    return of_session("forward_backward", forward_backward)


def last_sample_left_out():
    return batches(lambda batch: both(batch, lambda tensor: tensor[:-1]))


def last_sample_twice():
    return batches(lambda batch: both(batch, lambda tensor: torch.cat([tensor[1:], tensor[-1:]])))


def targets_of_other_samples():
    return batches(lambda batch: batch._replace(targets=every(batch.targets, lambda tensor: tensor.roll(1, 0))))


def same_target_for_all():
    return batches(
        lambda batch: batch._replace(targets=every(batch.targets, lambda tensor: tensor[:1].expand_as(tensor)))
    )


def updates_that(do):
    """Updates, numbered from 1, by `do` of the session, our update and the number."""
    counts: dict[int, int] = {}

    def update(self, original):
        counts[id(self)] = counts.get(id(self), 0) + 1
        do(self, original, counts[id(self)])

    return of_session("update", update)


def no_update_from_the_third_step():
    return updates_that(lambda self, update, number: update(self) if number < 3 else None)


def every_other_update_left_out():
    return updates_that(lambda self, update, number: update(self) if number % 2 else None)


def updates_done_twice():
    def twice(self, update, _):
        update(self)
        update(self)

    return updates_that(twice)


def at_rate(factor):
    def scaled(self, update, number):
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate * factor(number)
        update(self)
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate

    return updates_that(scaled)


def rate_that_decays():
    return at_rate(lambda number: 0.97 ** (number - 1))


def rate_that_warms_up():
    return at_rate(lambda number: min(1.0, number / 4))


def memory_of_the_optimizer_lost():
    def forgetting(self, update, number):
        if number > 2:
            self.optimizer.state.clear()
        update(self)

    return updates_that(forgetting)


def gradients_kept_from_the_step_before():
    def train(self, original, batch):
        with mock.patch.object(self.optimizer, "zero_grad", lambda **_: None):
            return original(self, batch)

    return of_session("train", train)


def own_rate(change):
    """The card's own rate, changed by `change` of it and the card's words."""
    original: Any = contract.OptimizerRule.from_problem

    def from_problem(cls, optimizer, batch_size):
        rule = original(optimizer, batch_size)
        return dataclasses.replace(rule, learning_rate=change(rule.learning_rate, optimizer["learning_rate"]))

    return mock.patch.object(contract.OptimizerRule, "from_problem", classmethod(from_problem))


def rate_not_scaled_by_the_batch():
    return own_rate(lambda _, card: card["value"])


def rate_scaled_by_the_root():
    return own_rate(lambda rate, card: (rate * card["value"]) ** 0.5)


def rate_of_half():
    return own_rate(lambda rate, _: rate / 2)


def decay_of_another_rule():
    original: Any = contract.OptimizerRule.from_problem

    def from_problem(cls, optimizer, batch_size):
        rule = original(optimizer, batch_size)
        return dataclasses.replace(rule, weight_decay=rule.weight_decay + 0.05)

    return mock.patch.object(contract.OptimizerRule, "from_problem", classmethod(from_problem))


def weights_rounded_to_half_precision():
    def rounded(self, update, _):
        update(self)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.copy_(weight.bfloat16())

    return updates_that(rounded)


def gradients_that_are(change):
    """Gradients changed before the update."""

    def changed(self, update, _):
        with torch.no_grad():
            for weight in self.model.parameters():
                if weight.grad is not None:
                    weight.grad.copy_(change(weight.grad))
        update(self)

    return updates_that(changed)


def gradients_rounded_to_bfloat16():
    return gradients_that_are(lambda gradient: gradient.bfloat16())


def gradients_without_small_numbers():
    return gradients_that_are(lambda gradient: gradient * (gradient.abs() > 1e-2 * gradient.abs().max()))


def gradients_clamped():
    return gradients_that_are(lambda gradient: gradient.clamp(-1e-4, 1e-4))


def gradients_by_their_sign():
    return gradients_that_are(lambda gradient: gradient.sign() * gradient.abs().mean())


def weights_of_yesterday():
    """Inference with weights of before the last updates."""

    def train(self, original, batch):
        kept = self.inference.plain
        report = original(self, batch)
        self.inference.plain = kept
        return report

    return of_session("train", train)


def trained_in_evaluation_mode():
    def train(self, original, batch):
        with mock.patch.object(self.model, "train", lambda mode=True: nn.Module.train(self.model, False)):
            return original(self, batch)

    return of_session("train", train)


def normalisation_of_the_batch_in_inference():
    def inference_model(self, _):
        return self.model.train()

    return of_session("inference_model", inference_model)


def loss_slightly_too_small():
    def train(self, original, batch):
        report = original(self, batch)
        return report._replace(loss=lambda: report.loss() * 0.999)

    return of_session("train", train)


def products_of_half_precision():
    def autocast(self, _):
        return torch.autocast("cpu", dtype=torch.bfloat16)

    return of_session("autocast", autocast)


def last_places_alone():
    """A series of which only the last 48 places are read."""
    return mock.patch.object(
        lstm.LastState, "forward", lambda part, series: part.output(part.memory(series[:, -48:])[0][:, -1])
    )


def first_half_left_out():
    return mock.patch.object(
        lstm.LastState, "forward", lambda part, series: part.output(part.memory(series[:, 100:])[0][:, -1])
    )


def gradient_cut_in_the_middle():
    """Back-propagation through time that ends after 100 places."""

    def forward(part, series):
        with torch.no_grad():
            _, state = part.memory(series[:, :-100])
        return part.output(part.memory(series[:, -100:], state)[0][:, -1])

    return mock.patch.object(lstm.LastState, "forward", forward)


def state_reset_in_the_middle():
    def forward(part, series):
        part.memory(series[:, :50])
        return part.output(part.memory(series[:, 50:])[0][:, -1])

    return mock.patch.object(lstm.LastState, "forward", forward)


def every_other_place_left_out():
    return mock.patch.object(
        lstm.LastState, "forward", lambda part, series: part.output(part.memory(series[:, 1::2])[0][:, -1])
    )


def trust_capped():
    """LAMB whose trust in a long tensor ends at 10, as in some implementations."""
    step = optimizers.Lamb.step

    def capped(self):
        where = torch.where

        def at_most_ten(condition, ratio, otherwise):
            return where(condition, ratio, otherwise).clamp(max=10)

        with mock.patch.object(torch, "where", at_most_ten):
            step(self)

    return mock.patch.object(optimizers.Lamb, "step", capped)


def largest_squares_kept():
    """AMSGrad where Adam was asked for."""

    def amsgrad(kind):
        def made(groups, rule, fused):
            settings = {"betas": tuple(rule.settings["betas"]), "eps": rule.settings["epsilon"]}
            return optimizers.construct(kind, groups, fused, lr=rule.learning_rate, amsgrad=True, **settings)

        return made

    return mock.patch.dict(optimizers.RULES, adam=amsgrad(torch.optim.Adam), adamw=amsgrad(torch.optim.AdamW))


def running_variance_biased():
    """The running variance over n in place of n - 1 numbers."""
    forward = nn.BatchNorm2d.forward

    def biased(layer, x):
        before = layer.running_var.clone()
        output = forward(layer, x)
        if layer.training:
            count = x.numel() / x.shape[1]
            batch = (layer.running_var - (1 - layer.momentum) * before) * ((count - 1) / count)
            layer.running_var.data = (1 - layer.momentum) * before + batch
        return output

    return mock.patch.object(nn.BatchNorm2d, "forward", biased)


def one_block_alone():
    def forward(network, tokens, segments=None, *head_inputs):
        with mock.patch.object(network, "blocks", network.blocks[:1]):
            return original(network, tokens, segments, *head_inputs)

    original = transformer.Transformer.forward
    return mock.patch.object(transformer.Transformer, "forward", forward)


def near_places_alone():
    """Attention over no more than the last 64 places."""

    def local(part, query, key, value, attention_mask):
        places = torch.arange(query.shape[-2])
        near = (places[:, None] - places[None]).abs() < 64
        if part.causal:
            near &= places[:, None] >= places[None]
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=near)

    return mock.patch.object(transformer.SelfAttention, "attend", local)


def last_token_not_predicted():
    forward = build.CrossEntropy.forward

    def shortened(part, logits, labels):
        lazy = isinstance(logits, LazyLogits)
        fewer = logits._replace(hidden=logits.hidden[:, :-1]) if lazy else logits[:, :-1]
        return forward(part, fewer, labels[:, :-1])

    return mock.patch.object(build.CrossEntropy, "forward", shortened)


ANY = (
    first_micro_batch_alone,
    last_micro_batch_left_out,
    micro_batches_summed_up,
    update_after_every_micro_batch,
    gradients_of_the_last_micro_batch,
    last_sample_left_out,
    last_sample_twice,
    targets_of_other_samples,
    same_target_for_all,
    no_update_from_the_third_step,
    every_other_update_left_out,
    updates_done_twice,
    rate_that_decays,
    rate_that_warms_up,
    gradients_kept_from_the_step_before,
    rate_of_half,
    decay_of_another_rule,
    weights_rounded_to_half_precision,
    gradients_without_small_numbers,
    gradients_clamped,
    gradients_by_their_sign,
    weights_of_yesterday,
    loss_slightly_too_small,
    products_of_half_precision,
)
STEPS = {
    "image_compression": (
        *(mutant for mutant in ANY if mutant not in (targets_of_other_samples, same_target_for_all)),
        memory_of_the_optimizer_lost,
        trained_in_evaluation_mode,
        normalisation_of_the_batch_in_inference,
    ),
    # Its gradients are clipped to a norm, and no copy of its weights is made for inference.
    "gpt2": (
        *(mutant for mutant in ANY if mutant not in (micro_batches_summed_up, weights_of_yesterday)),
        memory_of_the_optimizer_lost,
        largest_squares_kept,
        one_block_alone,
        near_places_alone,
        last_token_not_predicted,
    ),
    "bert_large_pretraining_128": (first_micro_batch_alone, rate_of_half, one_block_alone, near_places_alone),
    "lstm": (
        first_micro_batch_alone,
        no_update_from_the_third_step,
        memory_of_the_optimizer_lost,
        rate_of_half,
        last_places_alone,
        first_half_left_out,
        gradient_cut_in_the_middle,
        state_reset_in_the_middle,
        every_other_place_left_out,
    ),
    "mobilenet_v3_small": (
        first_micro_batch_alone,
        rate_not_scaled_by_the_batch,
        rate_scaled_by_the_root,
        no_update_from_the_third_step,
        memory_of_the_optimizer_lost,
        normalisation_of_the_batch_in_inference,
        running_variance_biased,
    ),
    "resnet50": (first_micro_batch_alone, rate_not_scaled_by_the_batch, no_update_from_the_third_step),
    "deep_voice_3": (first_micro_batch_alone, no_update_from_the_third_step, rate_of_half),
}
UPDATES_ALIKE = "the squares of gradients grow in the first updates, so that the largest of them are the last"
ROUNDED = "norms of rounded gradients differ by less than the tolerances, which GPUs need"
NOT_DETECTABLE = {
    ("image_compression", gradients_rounded_to_bfloat16): ROUNDED,
    ("image_compression", largest_squares_kept): UPDATES_ALIKE,
    ("bert_large_pretraining_128", trust_capped): "no tensor of the check is ten times as long as its step",
}
