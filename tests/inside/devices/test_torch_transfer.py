"""Batches on their way to a GPU, on a stand-in for its runtime that keeps what was asked of it. No GPU is here."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

import gpu_stand_in  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.messages import Step  # noqa: E402
from entrypoints.contract.session import Batch, Normalisation, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data.images import decoding  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared import gpu, transfer  # noqa: E402
from entrypoints.worker.loop import Loop  # noqa: E402
from entrypoints.workloads.pytorch import build  # noqa: E402

CARD, PHOTOGRAPHS = (cards.load()[name] for name in ("image_compression", "resnet50"))
OF_PHOTOGRAPHS = Normalisation.of(PHOTOGRAPHS.problem["input"])
AS_THEY_ARE = Normalisation((0.0,), (1.0,))


class Session(gpu.GpuSession):
    """Computes on the host, whose memory is the device's only for tensors that were sent."""

    copying = computing = 1.0  # s of a batch, by the stand-in's clock
    overlapping = True  # wait in each step until the next batch is on its way

    def __init__(self, card=CARD):
        self.on_device, self.steps = set(), 0
        facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
        rule = rule_of(card.problem, 4)
        runtime: Any = gpu_stand_in.Runtime()  # in place of a module
        super().__init__(runtime, build.model(card, 1), rule, "fp32", None, None, facts, dict)

    def tensor_to_device(self, tensor):
        if id(tensor) in self.on_device:
            return tensor
        copied = tensor.clone()
        self.on_device.add(id(copied))
        self.runtime.queue("copy", self.copying, bytes=tensor.numel() * tensor.element_size(), kept=copied)
        return copied

    def training_loss(self, batch):
        self.steps += 1
        self.runtime.queue("compute", self.computing)
        if self.overlapping:
            assert self.runtime.awaited(lambda: len(self.runtime.of("copy")) > self.steps), "the next copy waits"
        return super().training_loss(batch)


@pytest.fixture(autouse=True)
def owned(monkeypatch):
    """Tensors of the host belong to no stream; what comes later computes with as many threads as before."""
    kept, threads = [], torch.get_num_threads()
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: kept.append((self, stream)))
    torch.set_num_threads(1)
    yield kept
    torch.set_num_threads(threads)


def drawings(count=None) -> Iterator[Batch]:
    """Batches of images that are their own targets, as they are decoded."""
    random = np.random.default_rng(1)
    for _ in itertools.count() if count is None else range(count):
        pixels = torch.from_numpy(random.integers(256, size=(4, 28, 28, 1), dtype=np.uint8))
        yield Batch(pixels, pixels, normalisation=AS_THEY_ARE)


def fed(session, steps, batches=None):
    """The steps of a loop whose batches are fed."""
    sent: list[Any] = []
    loop = Loop(session, "training", session.feed(batches or drawings(), targets=True), sent.append, CARD, "fp32")
    for _ in range(steps):
        loop.advance()
    loop.settle()
    session.fed.close()
    return [message for message in sent if isinstance(message, Step)]


def test_a_batch_is_copied_while_the_batch_before_it_is_computed(owned):
    """`Session` would not end a step before the next copy is queued."""
    session = Session()
    assert len(fed(session, 4)) == 4
    runtime = session.runtime
    (side,) = {stream for _, _, stream, _ in runtime.of("copy")}
    assert {stream for _, _, stream, _ in runtime.of("compute")} == {runtime.default} and side is not runtime.default
    assert {details["bytes"] for *_, details in runtime.of("copy")} == {4 * 28 * 28}, "bytes, and inputs sent once"
    assert threading.get_ident() not in {thread for _, thread, _, _ in runtime.of("copy")}
    waits = [details["of"] for _, _, stream, details in runtime.of("wait") if stream is runtime.default]
    assert waits == [side] * 4 and {stream for _, stream in owned} == {runtime.default}


def test_few_batches_are_in_the_memory_of_the_device_before_they_are_used():
    """One has arrived, and the next one was copied while that waits."""
    session: Any = Session()
    fetched: list[int] = []

    def noted():
        for number, batch in enumerate(drawings()):
            fetched.append(number)
            yield batch

    feed = session.feed(noted(), targets=True)
    for used in range(3):
        most = used + transfer.AHEAD + 1
        assert session.runtime.awaited(lambda most=most: len(session.runtime.of("copy")) == most)
        time.sleep(0.05)  # in which more would be copied
        assert len(session.runtime.of("copy")) == len(fetched) == most
        next(feed)
    feed.close()


def test_no_step_waits_for_the_device():
    session: Any = Session()
    loop = Loop(session, "training", session.feed(drawings(), targets=True), lambda _: None, CARD, "fp32")
    for _ in range(4):
        loop.advance()
    session.fed.close()
    assert not session.runtime.of("device awaited")


@pytest.mark.parametrize(("copying", "computing", "waited"), [(3.0, 1.0, 2.0), (1.0, 3.0, 0.0)])
def test_the_wait_for_a_copy_is_a_wait_for_data(copying, computing, waited):
    session = Session()
    session.copying, session.computing = copying, computing
    later = fed(session, 5)[2:]
    assert [step.seconds for step in later] == [max(copying, computing)] * 3
    assert [step.wait for step in later] == [waited] * 3


def test_what_was_fed_trains_as_on_the_cpu():
    session = Session()
    expected: Any = cpu.open_session(build.model(CARD, 1), rule_of(CARD.problem, 4), "fp32")
    losses = [step.loss for step in fed(session, 3)]
    ours = [expected.train(batch).loss() for batch in itertools.islice(drawings(), 3)]
    assert losses[-1] == pytest.approx(ours[-1], rel=1e-5)


def test_inference_sends_no_targets():
    session: Any = Session()
    batch = session.receive(next(session.feed(drawings(), targets=False)))
    session.fed.close()
    assert batch.targets is None and batch.inputs.dtype == torch.uint8


def test_what_cannot_be_fetched_is_raised_where_it_is_asked_for():
    def broken():
        yield from drawings(1)
        raise RunError("data_error", "no image of here can be read")

    session = Session()
    session.overlapping = False
    with pytest.raises(RunError, match="no image of here"):
        fed(session, 2, broken())


def test_a_feed_ends_with_its_batches_and_when_it_is_closed():
    session: Any = Session()
    feed = session.feed(drawings(3), targets=True)
    assert len(list(feed)) == 3 and next(feed, None) is None
    endless = session.feed(drawings(), targets=True)
    next(endless)
    session.close()
    endless.thread.join(5)
    assert not endless.thread.is_alive()


def test_each_thread_of_requests_has_a_stream_and_waits_for_it_alone():
    """The first request goes on computing until the others are answered."""
    session: Any = Session()
    answered = threading.Semaphore(0)
    requests = list(drawings(3))
    session.infer_request(requests[0])  # as `RequestStreams` begins: alone
    forward, begun = session.forward, threading.Event()
    first: list[int] = []

    def held(batch):
        output = forward(batch)
        if not first:
            first.append(threading.get_ident())
            begun.set()
            assert all(answered.acquire(timeout=10) for _ in requests[1:])
        return output

    session.forward = held
    earlier = len(session.runtime.calls)
    with ThreadPoolExecutor(3) as threads:
        slow = threads.submit(session.infer_request, requests[0])
        assert begun.wait(10)
        for request in requests[1:]:
            threads.submit(session.infer_request, request).result(10)
            answered.release()
        outputs = slow.result(10).output
    calls = session.runtime.calls[earlier:]
    assert not session.runtime.of("device awaited")
    streams: dict[int, set[Any]] = {}
    for what, thread, stream, _ in calls:
        if what in ("copy", "event awaited"):
            streams.setdefault(thread, set()).add(stream)
    own = [stream for used in streams.values() for stream in used]
    assert len(streams) == len(own) == len(set(own)) >= 2 and session.runtime.default not in own
    for stream in own:  # which begins after the weights are there
        assert next(details["of"] for what, _, at, details in calls if what == "wait" and at is stream)
    expected = cpu.open_session(build.model(CARD, 1), rule_of(CARD.problem, 4), "fp32").infer_request(requests[0])
    assert np.allclose(outputs, expected.output, atol=1e-5)


def test_bytes_are_normalised_as_they_were_on_the_host():
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(2, 16, 16, 3).contiguous()
    batch = transfer.normalised(Batch(pixels, torch.zeros(2), normalisation=OF_PHOTOGRAPHS))
    exact = (pixels.double() / 255 - torch.tensor(OF_PHOTOGRAPHS.mean)) / torch.tensor(OF_PHOTOGRAPHS[1])
    before = torch.from_numpy(decoding.normalised(pixels.numpy(), OF_PHOTOGRAPHS))
    ours = batch.inputs.permute(0, 2, 3, 1)
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last) and batch.normalisation is None
    assert float((ours - exact).abs().max()) < 5e-7 and float((ours - before).abs().max()) < 5e-7
    assert torch.equal(transfer.normalised(batch).inputs, batch.inputs), "once"
    assert transfer.normalised(Batch(pixels, None, normalisation=OF_PHOTOGRAPHS), torch.contiguous_format)[
        0
    ].is_contiguous()


@pytest.mark.parametrize(("way", "asked"), [("generic", [()]), ("by name", [(), ("xpu",)]), ("none", [(), ("xpu",)])])
def test_memory_is_pinned_by_the_generic_call_where_it_can_be(monkeypatch, way, asked):
    calls, tensor = [], torch.ones(2)

    def pin_memory(self, *arguments):
        calls.append(arguments)
        if way == "none" or (way == "by name" and not arguments):
            raise NotImplementedError("aten::_pin_memory")
        return self.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    assert (transfer.pinned(tensor, "xpu") is tensor) == (way == "none") and calls == asked
    if way == "none":
        with pytest.raises(NotImplementedError):
            transfer.pinned(tensor, "cuda")


def test_a_tensor_is_sent_from_pinned_memory(monkeypatch):
    calls = []

    def pin_memory(self):
        calls.append(self.shape)
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    session = Session()
    session.hardware = torch.device("meta")
    assert gpu.GpuSession.tensor_to_device(session, torch.ones(3)).device.type == "meta" and calls == [(3,)]
