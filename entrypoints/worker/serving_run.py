"""A run of the task `serving`: an engine is started, warmed up, tried and timed, and every answer is reported."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterator

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Message, Phase, Request, Scheduled, Served, Step, Trial
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.results import serving as judgement
from entrypoints.serving import checkpoint
from entrypoints.serving.client import Answered, Client, Load
from entrypoints.serving.early_stopping import REQUESTS
from entrypoints.serving.engine import Engine, EngineSettings
from entrypoints.serving.load import Serving, plan, prompt
from entrypoints.serving.rate_search import RateSearch, enough, first_rate
from entrypoints.system.openmp import runtimes
from entrypoints.system.scheduling import elapsed, thread_times

Send = Callable[[Message], None]
SWITCH_INTERVAL = 0.0005  # s, after which a thread of Python lets another one run, such as the client's
# Parts of a run's requests: each has draws of its own. Trials follow.
FIRST, WARMUP, TIMED, TRIALS = range(4)
MOST_LATE = 3  # trials in which the client was late, and which are repeated


def load_engine(name: str) -> Engine:
    """Return an engine that is not started, from the one module that imports it.

    Raises RunError (`unsupported`) if it is not here.
    """
    try:
        made: Engine = importlib.import_module(f"entrypoints.serving.engines.{name}").engine()
    except ImportError as error:
        recipes = "cpu_serving, cuda_vllm, rocm_vllm or cpu_vllm"
        cause = f"--engine {name}: {error}. Take an image with an engine: of the recipe {recipes}"
        raise RunError("unsupported", cause[:1000]) from None
    return made


@contextlib.contextmanager
def model_folder(card: Card, precision: str, longest: int) -> Iterator[Path]:
    """Keep a folder with the configuration of a card's network while an engine needs it."""
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        checkpoint.write(Path(folder), card.problem["model"], precision, longest)
        yield Path(folder)


def until_stopped(work: Awaitable[None]) -> None:
    """Run to the end. A signal ends it in an orderly way: what handles signals is called once all is closed."""
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    received: list[int] = []

    async def watched() -> None:
        task = asyncio.ensure_future(work)

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in handlers:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(watched())
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if received and callable(handler := handlers[received[0]]):
        handler(received[0], None)


class ServingRun:
    """The phases of a run over one engine. Its loads are made with it, before the engine starts."""

    def __init__(self, engine: Engine, card: Card, configuration: Configuration, serving: Serving, send: Send) -> None:
        self.client, self.configuration, self.serving, self.send = Client(engine), configuration, serving, send
        self.vocabulary = card.problem["model"]["vocabulary"]
        untimed = configuration.warmup_steps
        counts = {FIRST: 1, WARMUP: untimed - 1, TIMED: (configuration.steps or 0) - untimed}
        self.loads = {part: self.load(part, count) for part, count in counts.items()}
        self.last = 0.0  # when the previous answer arrived, or the phase began, on the monotonic clock (s)
        self.begun = 0.0  # when the load began

    async def whole(self, folder: str, longest: int, started: Callable[[str], None]) -> None:
        """Start the engine, tell that by its name, run all phases, and close it.

        Raises what `entrypoints.serving.client.Client.run` raises.
        """
        how = self.configuration
        settings = EngineSettings(
            folder, True, how.device, how.precision, how.fp8_scaling, how.tensor, longest, how.seed
        )
        try:
            facts = await self.client.engine.start(settings)
            sys.setswitchinterval(SWITCH_INTERVAL)
            gc.collect()
            gc.freeze()  # to look through all that a framework has loaded would stop the client for 0.1 s at times
            self.send(facts)
            started(f"{facts.name} {facts.version}")
            await self.run()
        finally:
            await self.client.engine.close()

    async def run(self) -> None:
        """Send one request alone, a load to warm up, and the load that is timed, or that which ends a search."""
        await self.phase("compile", self.loads[FIRST])
        await self.phase("warmup", self.loads[WARMUP])
        if self.serving["find_goodput"] and await self.search():
            return
        before = thread_times()
        await self.phase("steady", self.loads[TIMED])
        self.send(Scheduled(self.last, *elapsed(before, thread_times()), runtimes()))

    def load(self, part: int, count: int, rate: float | None = None) -> Load:
        """Return a part of the run's requests, with other prompts and draws than every other part."""
        seed = self.configuration.seed
        planned = plan(self.serving, count, seed, part, rate)
        prompts = [prompt(self.vocabulary, each.prompt, seed, part, number) for number, each in enumerate(planned)]
        return Load(planned, prompts, self.serving["arrivals"], self.serving["concurrency"])

    async def phase(self, name: str, load: Load) -> None:
        """Send a load and report every answer. The phase begins with the load, and ends with its last answer."""
        self.begin(name, time.monotonic())
        await self.client.run(load, self.begun, self.report)

    def begin(self, name: str, at: float) -> None:
        """Report that a phase began at a time of the monotonic clock (s)."""
        self.last = self.begun = at
        self.send(Phase(name, at))

    def report(self, answered: Answered) -> bool:
        """Send an answer as a step, from the answer before."""
        at = max(self.last, answered.tokens[-1])
        seconds, self.last = at - self.last, at
        request = Request(answered.latency, min(answered.late, answered.latency), 0.0, 0.0, 0.0)
        self.send(Step(seconds, 0.0, 1, 0, None, request, served=served(answered, self.begun)))
        return True

    async def search(self) -> bool:
        """Find the largest rate at which the limits hold; return whether there is one. Each trial is reported.

        The last trial, at the rate that was found, is the timed window. If it fails, the search goes on: a window that
        has to pass and gets no second chance would leave a third of all searches without an end.
        """
        search, part, late = RateSearch(first_rate(self.serving["rate"] or 1.0)), TRIALS, 0
        asked, limit = len(self.loads[TIMED].planned), self.serving["first_token_limit"]
        while (rate := search.due()) is not None:
            is_last = search.next() is None
            count = enough(rate, limit, asked if is_last else max(REQUESTS, asked))
            load = self.load(TIMED if is_last else part, count, rate)
            before = thread_times()
            answers, reason = await self.trial(load)
            if is_last and reason is None:
                scheduled = elapsed(before, thread_times())
                self.begin("steady", self.begun)
                for answered in answers:
                    self.report(answered)
                self.send(Scheduled(self.last, *scheduled, runtimes()))
                return True
            self.send(Trial(self.begun, time.monotonic(), rate, len(answers), reason or ""))
            part += 1
            if not judgement.says_nothing(reason):
                search.tell(rate, reason is None)
                continue
            late += 1
            if late > MOST_LATE:
                return False
        return False

    async def trial(self, load: Load) -> tuple[list[Answered], str | None]:
        """Return the answers to a load, in order of arrival, and which limit was not kept. It ends when one is lost."""
        answers: list[Answered] = []
        seen: list[Served] = []
        self.begun = begun = time.monotonic()

        def note(answered: Answered) -> bool:
            answers.append(answered)
            seen.append(served(answered, begun))
            return judgement.over(seen, self.serving, len(load.planned)) is None

        await self.client.run(load, begun, note)
        cut = judgement.over(seen, self.serving, len(load.planned))
        return answers, cut or judgement.failing(seen, self.serving)


def served(answered: Answered, begun: float) -> Served:
    """Return an answered request of a load that began at a time of the monotonic clock (s)."""
    due = max(0.0, answered.due - begun)
    return Served(due, answered.late, answered.prompt, answered.first, answered.gaps)
