"""What an engine is to the client that sends requests, and what can go wrong in it."""

from __future__ import annotations

from typing import AsyncIterator, Mapping, NamedTuple, Protocol, Sequence

from entrypoints.contract.messages import EngineFacts

LONGEST_SILENCE = 120.0  # s in which an engine with requests gives no token, before it is taken to hang


class EngineSettings(NamedTuple):
    """What an engine is started with."""

    folder: str  # with config.json, and with model.safetensors if the weights are to be read
    dummy: bool  # whether weights are made up
    device: str  # cpu, cuda
    precision: str  # fp32, bf16, fp16, fp8
    scaling: str | None  # one of FP8_SCALINGS in FP8
    devices: int  # that share the matrices of each layer
    longest: int  # tokens of a prompt and its answer together
    seed: int


class Engine(Protocol):
    """An engine that batches requests by itself. All methods are called from one event loop."""

    async def start(self, settings: EngineSettings) -> EngineFacts:
        """Load the model and get ready. Raises RunError for what it cannot do."""

    def stream(self, name: str, prompt: Sequence[int], new_tokens: int) -> AsyncIterator[int]:
        """Send a request; yield the number of new tokens each time some arrive, until there are `new_tokens`.

        Raises RunError if the engine refuses the request or has died. Leaving the iteration cancels the request.
        """

    async def first_token(self, prompt: Sequence[int]) -> Mapping[int, float]:
        """Return log-probabilities of the likeliest tokens after a prompt, by token."""

    async def close(self) -> None:
        """Stop, and release the device. It may be called at any time, also after an error."""
