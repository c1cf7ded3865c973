"""What the card of Deep Voice 3 says of its cost, who sees what, and that speech can be learnt."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("written", reason="torchvision is not here")

import rows  # noqa: E402
from test_torch_sequences import smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data import formats  # noqa: E402
from entrypoints.workloads.pytorch import build, deep_voice_3, loader  # noqa: E402

CARD = cards.load()["deep_voice_3"]


def test_the_operations_of_the_card_are_those_that_are_counted():
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    model, batch = build.model(CARD, seed=3), loader.synthetic_batch(CARD, 2, seed=1)
    with torch.no_grad(), counter.FlopCounterMode(display=False) as forward:
        model(batch.inputs)
    with counter.FlopCounterMode(display=False) as training:
        model(batch.inputs, batch.targets)[1].backward()
    assert forward.get_total_flops() == 2 * CARD.flops["forward_per_unit"]
    assert training.get_total_flops() == 2 * CARD.flops_per_unit("training")


@pytest.mark.skipif(torch.__version__ < "2", reason="1.13 keeps other tensors")
def test_the_memory_of_the_card_is_what_is_counted():
    model = build.model(CARD, seed=3).train()
    weights = {value.data_ptr() for value in (*model.parameters(), *model.buffers())}

    def kept(samples):
        storages = {}

        def keep(tensor):
            if tensor.data_ptr() not in weights:
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        batch = loader.synthetic_batch(CARD, samples, seed=1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(batch.inputs, batch.targets)
        return sum(storage.nbytes() for storage in storages.values()) / 4

    assert CARD.memory["training_elements_per_unit"] == pytest.approx((kept(2) - kept(1)), rel=0.01)
    channels, frames = CARD.problem["model"]["decoder"]["channels"], CARD.problem["input"]["frames"]
    padded = frames + CARD.problem["model"]["kernel"] - 1
    assert CARD.memory["inference_elements_per_unit"] == channels * padded + 2 * channels * frames


@pytest.fixture()
def small():
    card = smaller(CARD)
    network = build.without_randomness(build.model(card, seed=3)).eval().double().network
    return network, loader.formula_batch(card, 1).inputs


def moved(network, inputs, changed, output):
    """Frames of an output that another input changes."""
    with torch.no_grad():
        before, after = network(*inputs)[output], network(*changed)[output]
    return ((before - after).abs().amax(dim=(0, 1)) > 0).tolist()


def test_the_decoder_looks_back_alone_and_the_converter_both_ways(small):
    network, (characters, speakers, mel) = small
    mel = mel.double()
    other = mel.clone()
    other[:, :, 10] += 1
    frames = mel.shape[-1]
    assert moved(network, (characters, speakers, mel), (characters, speakers, other), 0) == [
        frame >= 10 for frame in range(frames)
    ]
    around = 10 - len(network.converter.blocks) * 2  # each looks two frames ahead
    assert moved(network, (characters, speakers, mel), (characters, speakers, other), 1) == [
        frame >= around for frame in range(frames)
    ]


def test_every_frame_depends_on_text_and_speaker(small):
    network, (characters, speakers, mel) = small
    inputs = (characters, speakers, mel.double())
    other = characters.clone()
    other[0, 3] = 1 + characters[0, 3] % 30
    assert all(moved(network, inputs, (other, speakers, mel.double()), 0))
    assert all(moved(network, inputs, (characters, (speakers + 1) % 5, mel.double()), 0))


def test_places_are_sines_and_cosines_in_turn():
    angles = 1.5 * torch.arange(7)
    slower = angles / 100  # 10000 to the power of 2 / 4
    expected = torch.stack([angles.sin(), angles.cos(), slower.sin(), slower.cos()])
    torch.testing.assert_close(deep_voice_3.positional_encoding(7, 4, rate=1.5), expected, rtol=1e-6, atol=1e-6)


def test_queries_start_as_keys():
    for attention in build.model(CARD, seed=3).network.decoder.attentions.values():
        assert torch.equal(attention.query.weight, attention.key.weight)


def test_what_is_dropped_is_what_the_card_says():
    """The probe drops nothing, so the shares have to be looked at."""
    model = CARD.problem["model"]
    layers = [layer for layer in build.model(CARD, seed=3).modules() if isinstance(layer, torch.nn.Dropout)]
    blocks = sum(model[part]["blocks"] for part in ("encoder", "decoder", "converter"))
    count = blocks + len(model["decoder"]["prenet"]) + 1 + len(model["attention"]["after_blocks"])
    assert [layer.p for layer in layers] == [0.05] * count


def test_characters_are_counted_and_padding_is_silent():
    batch = loader.formula_batch(CARD, 3)
    characters, _, mel = batch.inputs
    _, linear, done = batch.targets
    assert batch.tokens is not None and batch.padding is not None
    assert batch.tokens == int((characters > 0).sum()) and batch.tokens + batch.padding == characters.numel()
    assert 0 < done.sum() < done.numel() and batch.padding > 0
    assert torch.equal(done, done.cummax(-1).values)
    assert not (mel * done).any() and not (linear * done).any() and mel.max() > 0.9
    full = loader.synthetic_batch(CARD, 3, seed=1)
    assert full.padding == 0 and not full.targets[2].any()


def source(path, task="training"):
    return formats.open_for(CARD, path, task, "pytorch")[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_utterance_is_trained_on_once_an_epoch(tmp_path, workers):
    spoken = source(rows.write(tmp_path, (3, 3)))
    batches = list(itertools.islice(loader.source_batches(CARD, "training", spoken, 2, workers, seed=1), 6))
    assert all(batch.samples == 2 and (batch.decode_seconds or 0) > 0 for batch in batches)
    lengths = [int(length) for batch in batches for length in (batch.inputs[0] > 0).sum(1)]
    assert sorted(lengths[:6]) == sorted(lengths[6:]) == [10, 15, 20, 25, 30, 35] and lengths[:6] != lengths[6:]
    assert batches[0].tokens == sum(lengths[:2]) and batches[0].padding == 160 - sum(lengths[:2])


def test_an_evaluation_takes_all_once_in_order(tmp_path):
    batches = list(loader.evaluation_batches(CARD, source(rows.write(tmp_path), "inference"), 2, 0))
    assert [batch.samples for batch in batches] == [2, 2, 1]
    assert [int(length) for batch in batches for length in (batch.inputs[0] > 0).sum(1)] == [10, 15, 20, 25, 30]


def test_a_damaged_row_ends_the_run_as_an_error_of_the_data(tmp_path):
    (tmp_path / "data.speech").write_bytes(rows.header(1) + rows.row(0, speaker=7))
    spoken = source(tmp_path)
    for batches in (
        loader.source_batches(CARD, "training", spoken, 1, 1, seed=1),
        loader.evaluation_batches(CARD, spoken, 1, 0),
    ):
        with pytest.raises(RunError, match="data.speech, row 0: it is damaged; prepare the data again") as raised:
            next(batches)
        assert raised.value.state == "data_error"


@pytest.mark.full
def test_the_loss_falls_on_speech(program, tmp_path):
    folder = rows.write(tmp_path, (2,))
    document = program.result(
        *("deep_voice_3", "--data", folder, "--batch-size", 2, "--epochs", 3, "--target-loss", 0.01),
        *("--warmup-steps", 1, "--data-workers", 0, "--meter", "none", "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed", document["status"]
    losses = [evaluation["loss"] for evaluation in document["target"]["evaluations"]]
    assert len(losses) == 3 and losses[0] > losses[1] + 0.001 > losses[2] + 0.002, losses
    assert document["data"]["source"] == "speech" and document["data"]["samples"] == 2
    assert not {"token_throughput", "padding_fraction"} & set(document["metrics"]), "its rows hold no tokens"
