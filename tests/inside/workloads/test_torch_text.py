"""Real text through PyTorch: the same batches from any number of workers, and whole runs of small networks."""

from __future__ import annotations

import codecs
import itertools
import json
import re

import pytest

torch = pytest.importorskip("torch")

from packed_text import header, passages, row, small, tokens  # noqa: E402
from program import Program, lay  # noqa: E402

from entrypoints.contract.group import Place  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data import formats  # noqa: E402
from entrypoints.workloads.pytorch import loader, transformer  # noqa: E402

GPT, BERT = small("gpt2", 16), small("bert_base", 16)


@pytest.fixture(scope="module")
def poem():
    """Text that every Python brings along."""
    import this

    return codecs.decode(this.s, "rot13")


# Four passages, and a question about each that asks for one of its words.
SENTENCES = ["the cat sat on the mat", "a dog ran in the park", "six men ate an old pie", "her son won a big cup"]
ASKED = [("cat", 1), ("dog", 5), ("men", 5), ("son", 5)]  # the answer to each is the word at this place
NAMES = sorted(set(" ".join(SENTENCES).split()))


def asked(number):
    """A row that asks for one word of a sentence."""
    sentence, (word, place) = SENTENCES[number], ASKED[number]
    spans = [match.span() for match in re.finditer(r"\S+", sentence)]
    numbers = [3 + NAMES.index(name) for name in sentence.split()]
    return row([3 + NAMES.index(word)], numbers, 3 + place, 3 + place, number, offsets=spans)


ROWS = [asked(number) for number in range(4)]
ANSWERED = [(sentence, [[sentence.split()[place]]]) for sentence, (_, place) in zip(SENTENCES, ASKED)]


def opened(card, folder, task="training"):
    return formats.open_for(card, folder, task, "pytorch")[1]


def taken(batches, count):
    return [(batch.inputs, batch.targets) for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("task", ["training", "inference"])
def test_workers_change_nothing(tmp_path, task):
    source = opened(GPT, tokens(tmp_path, [at % 50 for at in range(200)]), task)
    alone, shared = (taken(loader.source_batches(GPT, task, source, 5, workers, 0), 7) for workers in (0, 2))
    for actual, other in zip(alone, shared):
        assert all(map(torch.equal, actual, other))


def test_ranks_share_what_one_takes(tmp_path):
    source = opened(GPT, tokens(tmp_path, [at % 50 for at in range(900)]))
    alone = taken(loader.source_batches(GPT, "training", source, 4, 0, 0), 5)
    ranks = [loader.source_batches(GPT, "training", source, 2, 0, 0, Place(rank, 2, 0, 1)) for rank in (0, 1)]
    for (blocks, _), (first, _), (second, _) in zip(alone, *(taken(batches, 5) for batches in ranks)):
        assert torch.equal(blocks, torch.cat([first, second]))


def test_a_batch_says_what_it_holds(tmp_path):
    source = opened(BERT, passages(tmp_path, ROWS, ANSWERED))
    batch = next(loader.source_batches(BERT, "training", source, 4, 0, 0))
    assert (batch.tokens, batch.padding, batch.samples) == (
        sum(len(sentence.split()) for sentence in SENTENCES) + 4 * 4,
        64 - (batch.tokens or 0),
        4,
    )
    assert batch.decode_seconds and batch.decode_seconds > 0 and sorted(batch.numbers) == [0, 1, 2, 3]
    assert [len(batch.numbers) for batch in loader.evaluation_batches(BERT, source, 3, 1)] == [3, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_damage_ends_training_and_evaluation(tmp_path, workers):
    source = opened(GPT, tokens(tmp_path, [60] * 40))
    for batches in (
        loader.source_batches(GPT, "training", source, 2, workers, 0),
        loader.evaluation_batches(GPT, source, 2, workers),
    ):
        with pytest.raises(RunError, match="token 60 in a vocabulary of 50") as raised:
            list(itertools.islice(batches, 2))
        assert raised.value.state == "data_error"


# Whole runs


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program with two small workloads beside the others."""
    folder = tmp_path_factory.mktemp("image")
    tree = lay(folder / "sifmark", recipe="cpu", framework="pytorch", device="cpu")
    for card in (GPT, BERT):
        parameters = sum(p.numel() for p in transformer.network(card.problem["model"]).parameters())
        written = {**card._asdict(), "problem": {**card.problem, "parameters": parameters}}
        (tree / "entrypoints" / "workloads" / f"{card.name}.json").write_text(json.dumps(written))
    return Program(tree, folder)


QUIET = ("--threads", 1, "--meter", "none", "--skip-numerics", "--data-workers", 0)


def written(folder, text):
    symbols = sorted(set(text))
    return tokens(folder, [symbols.index(symbol) for symbol in text], vocabulary=len(symbols))


@pytest.mark.full
def test_a_small_gpt_learns_a_poem_by_heart(program, poem, tmp_path):
    """Guessing among its 49 symbols has a loss of 3.9; knowing how often each comes, 3.1."""
    assert len(set(poem)) <= 50
    words = ("small_gpt2", "--data", written(tmp_path, poem), "--batch-size", 8, *QUIET)
    document = program.result(*words, "--steps", 120, "--target-loss", 2.3, "--evaluation-steps", 40)
    assert document["status"]["state"] == "completed", document["status"]
    losses = [evaluation["loss"] for evaluation in document["target"]["evaluations"]]
    assert document["target"]["reached"], losses
    assert {evaluation["samples"] for evaluation in document["target"]["evaluations"]} == {(len(poem) - 1) // 16}
    assert document["data"]["source"] == document["configuration"]["data"] == "tokens"
    metrics = document["metrics"]
    assert metrics["token_throughput"]["value"] == pytest.approx(16 * metrics["throughput"]["value"])
    assert metrics["padding_fraction"]["value"] == 0
    assert metrics["decode_rate"]["value"] > metrics["throughput"]["value"]
    assert 0 < metrics["data_wait_fraction"]["value"] < 1


@pytest.mark.full
def test_a_small_gpt_continues_a_poem(program, poem, tmp_path):
    words = ("small_gpt2", "--task", "inference", "--data", written(tmp_path, poem), "--batch-size", 2, *QUIET)
    document = program.result(*words, "--steps", 4, "--warmup-steps", 1)
    assert document["status"]["state"] == "completed", document["status"]
    metrics = document["metrics"]
    assert metrics["decode_throughput"]["value"] > 0 and metrics["decode_rate"]["value"] > 0


@pytest.mark.full
def test_a_small_bert_learns_to_answer(program, tmp_path):
    words = ("small_bert_base", "--data", passages(tmp_path, ROWS, ANSWERED), "--batch-size", 4, *QUIET)
    document = program.result(*words, "--steps", 120, "--target-loss", 0.02, "--evaluation-steps", 60)
    assert document["status"]["state"] == "completed", document["status"]
    last = document["target"]["evaluations"][-1]
    assert (last["samples"], last["exact_match"], last["f1"]) == (4, 1.0, 1.0), document["target"]
    assert document["metrics"]["padding_fraction"]["value"] == pytest.approx(1 - 40 / 64)
    assert document["metrics"]["token_throughput"]["value"] == pytest.approx(
        10 * document["metrics"]["throughput"]["value"]
    )


@pytest.mark.full
def test_requests_of_passages(program, tmp_path):
    words = ("small_bert_base", "--task", "inference", "--data", passages(tmp_path, ROWS, ANSWERED))
    document = program.result(*words, "--concurrency", 2, "--steps", 20, "--threads", 1, "--meter", "none")
    assert document["status"]["state"] == "completed", document["status"]
    assert document["requests"]["count"] > 10


@pytest.mark.full  # the gate has damaged photographs
def test_a_run_on_damaged_text_says_so(program, tmp_path):
    (tmp_path / "a.tokens").write_bytes(header(b"SIFTOKEN", 40) + b"\xff" * 80)
    document = program.result("small_gpt2", "--data", tmp_path, "--batch-size", 1, "--steps", 4, *QUIET)
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("data_error", 4)
    assert "token 65535 in a vocabulary of 50: it is damaged" in document["status"]["message"]
