"""Takes the place of an engine's module in a tree: it answers at once, and can be planted a fault.

SERVING_FAULT is what happens at the tenth request: `dies` (the process), `raises`, `memory`, `refuses`, `stalls` (once,
for 0.5 s), `hangs` in a way that no signal ends, or `child` (it leaves a process behind).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from entrypoints.contract.messages import EngineFacts
from entrypoints.contract.statuses import RunError

TENTH = 10


class PlantedEngine:
    """Each token takes a millisecond."""

    def __init__(self):
        self.asked, self.fault = 0, os.environ.get("SERVING_FAULT", "")

    async def start(self, settings):
        if self.fault == "start":
            raise MemoryError("no room for keys and values")
        if self.fault == "child":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return EngineFacts("vllm", "0.0", {"planted": self.fault})

    async def stream(self, name, prompt, new_tokens):
        self.asked += 1
        if self.asked == TENTH:
            await self.fail()
        for _ in range(new_tokens):
            await asyncio.sleep(0.001)
            yield 1

    async def fail(self):
        if self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "raises":
            raise KeyError("a fault of the engine")
        elif self.fault == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        elif self.fault == "refuses":
            raise RunError("crashed", "the engine refused a request: longer than 16 tokens")
        elif self.fault == "stalls":
            time.sleep(0.5)
        elif self.fault == "hangs":
            while True:
                await asyncio.sleep(0.001)
                time.sleep(0.5)

    async def first_token(self, prompt):
        return {0: -1.0}

    async def close(self):
        pass


def engine():
    return PlantedEngine()
