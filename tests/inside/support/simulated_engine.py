"""An engine that computes nothing: it answers one token after the other to all requests at once, as real ones do.

A step gives a token to each of at most `slots` requests, and takes `step` seconds. It can be planted a fault.
"""

from __future__ import annotations

import asyncio
import collections

from entrypoints.contract.messages import EngineFacts


class SimulatedEngine:
    """One event loop serves and asks, so that no clock but the system's is needed."""

    def __init__(self, step=0.002, slots=4, fault=None):
        self.step, self.slots, self.fault = step, slots, fault or (lambda engine: None)
        self.waiting: collections.deque[asyncio.Queue[int]] = collections.deque()
        self.most_inside = self.inside = self.steps = self.cancelled = 0
        self.stepping = None

    async def start(self, settings):
        self.stepping = asyncio.ensure_future(self.serve())
        return EngineFacts("vllm", "0.0 simulated", {"slots": self.slots})

    async def serve(self):
        while True:
            await asyncio.sleep(self.step)
            self.steps += 1
            stall = self.fault(self)
            if stall:
                await asyncio.sleep(stall)
            for tokens in list(self.waiting)[: self.slots]:
                tokens.put_nowait(1)

    async def stream(self, name, prompt, new_tokens):
        tokens: asyncio.Queue[int] = asyncio.Queue()
        self.waiting.append(tokens)
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        finished = False
        try:
            for _ in range(new_tokens):
                yield await tokens.get()
            finished = True
        finally:
            self.waiting.remove(tokens)
            self.inside -= 1
            self.cancelled += not finished

    async def first_token(self, prompt):
        return {}

    async def close(self):
        if self.stepping:
            self.stepping.cancel()
