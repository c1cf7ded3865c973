"""The client of an engine: times count from when requests are due, whoever is late, and nothing is left behind."""

from __future__ import annotations

import asyncio
import time

import pytest
from simulated_engine import SimulatedEngine

from entrypoints.contract.statuses import RunError
from entrypoints.serving import client
from entrypoints.serving.client import Client, Load
from entrypoints.serving.load import Planned

NEW = 3


def answers(engine, load, enough=lambda given: True):
    """What a client reports of a load, in order, each answer with when it was reported."""
    given = []

    async def whole():
        await engine.start(None)
        try:
            start = time.monotonic()

            def report(answered):
                given.append(
                    answered._replace(
                        due=answered.due - start,
                        sent=answered.sent - start,
                        tokens=[at - start for at in answered.tokens],
                    )
                )
                return enough(given)

            await Client(engine).run(load, start, report)
        finally:
            await engine.close()

    asyncio.run(whole())
    return given


def load(times, arrivals="constant", concurrency=None):
    planned = [Planned(at, 4, NEW) for at in times]
    return Load(planned, [[1, 2, 3, 4]] * len(planned), arrivals, concurrency)


def test_every_request_is_answered_once_and_counts_from_when_it_was_due():
    given = answers(SimulatedEngine(), load([number / 200 for number in range(60)]))
    assert sorted(each.number for each in given) == list(range(60))
    for each in given:
        assert each.due == pytest.approx(each.number / 200, abs=1e-6)
        assert each.prompt == 4
        assert len(each.tokens) == NEW
        assert each.due <= each.sent <= each.tokens[0] <= each.tokens[-1]
        assert each.latency == pytest.approx(each.first + sum(each.gaps))
        assert each.per_token == pytest.approx(sum(each.gaps) / (NEW - 1))


def test_what_an_engine_makes_wait_shows_in_all_requests_that_were_due_meanwhile():
    """It stands still once, for 0.3 s. A client that waits for it before it sends the next would see it once."""
    stalled: list[int] = []

    def stall(engine):
        if engine.steps < 20 or stalled:
            return 0.0
        stalled.append(engine.steps)
        return 0.3

    given = answers(SimulatedEngine(fault=stall), load([number / 100 for number in range(80)]))
    slow = [each for each in given if each.latency > 0.1]
    assert 15 <= len(slow) <= 40
    assert max(each.first for each in given) > 0.25


def test_a_client_that_is_late_itself_says_so_and_counts_it():
    blocked: list[bool] = []

    def block(engine):
        if engine.steps > 20 and not blocked:
            blocked.append(True)
            time.sleep(0.25)  # in the client's own thread
        return 0.0

    given = answers(SimulatedEngine(fault=block), load([number / 100 for number in range(60)]))
    late = [each for each in given if each.late > 0.1]
    assert 5 <= len(late) <= 25
    assert all(each.first >= each.late for each in given)


def test_clients_of_a_closed_loop_have_one_request_each():
    engine = SimulatedEngine(slots=2)
    given = answers(engine, load([0.0] * 30, "closed", 5))
    assert len(given) == 30
    assert engine.most_inside == 5
    assert max(each.late for each in given) < 0.05


def test_offline_sends_all_at_once():
    engine = SimulatedEngine(slots=8)
    assert len(answers(engine, load([0.0] * 40, "offline"))) == 40
    assert engine.most_inside == 40


@pytest.mark.parametrize(("arrivals", "concurrency"), [("constant", None), ("closed", 3), ("offline", None)])
def test_a_load_that_is_broken_off_leaves_no_request_behind(arrivals, concurrency):
    engine = SimulatedEngine(slots=1)
    given = answers(engine, load([0.0] * 50, arrivals, concurrency), enough=lambda given: len(given) < 3)
    assert len(given) == 3
    assert engine.inside == 0
    assert engine.cancelled > 0


@pytest.mark.parametrize(("arrivals", "concurrency"), [("constant", None), ("closed", 3)])
def test_what_an_engine_raises_ends_the_load(arrivals, concurrency):
    class Refusing(SimulatedEngine):
        async def stream(self, name, prompt, new_tokens):
            if name.endswith("-7"):
                raise RunError("crashed", "the engine refused a request")
            async for count in super().stream(name, prompt, new_tokens):
                yield count

    engine = Refusing()
    with pytest.raises(RunError, match="refused"):
        answers(engine, load([number / 100 for number in range(500)], arrivals, concurrency))
    assert engine.inside == 0


def test_an_engine_that_gives_no_token_hangs(monkeypatch):
    monkeypatch.setattr(client, "LONGEST_SILENCE", 0.5)
    began = time.monotonic()
    with pytest.raises(RunError, match="hangs: 2 requests"):
        answers(SimulatedEngine(fault=lambda engine: 3600.0), load([0.0, 0.0]))
    assert time.monotonic() - began < 10


def test_an_engine_without_requests_may_be_silent(monkeypatch):
    monkeypatch.setattr(client, "LONGEST_SILENCE", 0.5)
    assert len(answers(SimulatedEngine(), load([0.0, 1.8]))) == 2


def test_fewer_tokens_than_asked_for_are_no_answer():
    class Short(SimulatedEngine):
        async def stream(self, name, prompt, new_tokens):
            async for count in super().stream(name, prompt, new_tokens - 1):
                yield count

    with pytest.raises(RunError, match="2 tokens where 3"):
        answers(Short(), load([0.0]))
