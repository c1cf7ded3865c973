"""Continuous batching of Hugging Face's transformers, which runs wherever PyTorch does.

Attention is PyTorch's own (`sdpa`), or written out where there are sinks (`eager`), so that no kernels are fetched. It
computes in a thread of this process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, AsyncIterator, Mapping, Sequence

import torch

# transformers imports torchvision where it is, for images; one that was built for another PyTorch would stop it here.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]

import transformers  # noqa: E402
from transformers.generation import ContinuousBatchingConfig, GenerationConfig  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402

from entrypoints.contract.messages import EngineFacts  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.serving.checkpoint import CONFIGURATION, DTYPES  # noqa: E402
from entrypoints.serving.engine import EngineSettings  # noqa: E402

PAGE = 32  # tokens whose keys and values are kept together
ON_CPU = {"num_blocks": 1024, "max_batch_tokens": 1024}  # on a GPU they follow from its memory
DUMMY = 1e-3  # largest size of a made-up weight, as vLLM's
POLL = 0.5  # s between two looks at whether the engine's thread is alive


class TransformersEngine:
    """The manager of continuous batching, and the requests that wait for it."""

    def __init__(self) -> None:
        self.manager: Any = None

    async def start(self, settings: EngineSettings) -> EngineFacts:
        """Make the model and start the thread that computes."""
        if settings.devices > 1:
            raise RunError(
                "unsupported", "--tensor: transformers' engine serves on one device here, take --engine vllm"
            )
        if settings.scaling:
            raise RunError("unsupported", "--precision fp8: transformers' engine has none here, take --engine vllm")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        model = _model(settings)
        batching = ContinuousBatchingConfig(
            page_size=PAGE,
            allow_block_sharing=False,
            return_logprobs=not settings.dummy,
            auto_switch_to_flash=False,
            seed=settings.seed,
            **(ON_CPU if settings.device == "cpu" else {}),
        )
        greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=settings.longest)
        self.manager = model.init_continuous_batching(greedy, batching)
        with torch.no_grad():
            self.manager.warmup()
        self.manager.start()
        resolved = self.manager.continuous_batching_config
        names = ("page_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch", "scheduler_type")
        return EngineFacts(
            "transformers",
            transformers.__version__,
            {
                "attention": model.config._attn_implementation,
                "prefix_caching": False,
                "cuda_graphs": str(resolved.use_cuda_graph),
                "asynchronous": str(resolved.use_async_batching),
                "weights": "made up" if settings.dummy else "read",
                "quantization": None,
                **({"expert_routing": "by the weights"} if hasattr(model.config, "num_experts_per_tok") else {}),
                **{name: getattr(resolved, name) for name in names},
            },
        )

    async def stream(self, name: str, prompt: Sequence[int], new_tokens: int) -> AsyncIterator[int]:
        """Yield the number of new tokens that arrived, as often as some do."""
        arrived = 0
        async for output in self._outputs(name, prompt, new_tokens):
            count, arrived = len(output.generated_tokens) - arrived, len(output.generated_tokens)
            if count:
                yield count

    async def first_token(self, prompt: Sequence[int]) -> Mapping[int, float]:
        """Return the log-probability of the likeliest token: the engine tells no others."""
        likeliest: Mapping[int, float] = {}
        async for output in self._outputs(f"first {id(prompt)}", prompt, 1):
            likeliest = dict(zip(output.generated_tokens, output.logprobs))
        return likeliest

    async def _outputs(self, name: str, prompt: Sequence[int], new_tokens: int) -> AsyncIterator[Any]:
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        self.manager.register_result_handler(name, outputs.put_nowait)
        self.manager.add_request(list(prompt), name, max_new_tokens=new_tokens, streaming=True)
        finished = False
        try:
            while not finished:
                try:
                    output = await asyncio.wait_for(outputs.get(), POLL)
                except asyncio.TimeoutError:
                    self._require_alive()
                    continue
                if output.error is not None:
                    raise _failure(output.error)
                finished = output.is_finished()
                yield output
        finally:
            if not finished:
                self.manager.cancel_request(name)

    def _require_alive(self) -> None:
        if not self.manager.is_running():
            raise RunError("crashed", "the engine's thread has ended; see standard error")

    async def close(self) -> None:
        """Let the thread end, and drop what waits."""
        if self.manager is not None:
            self.manager.stop(block=False, hard_stop=True)


def _model(settings: EngineSettings) -> Any:
    """Return the network, with weights from its file or made up where it is needed."""
    own = json.loads((Path(settings.folder) / CONFIGURATION).read_text("utf-8"))
    kind = getattr(transformers, own["architectures"][0])
    attention = "sdpa" if kind._supports_sdpa else "eager"
    dtype = getattr(torch, DTYPES[settings.precision])
    if not settings.dummy:
        return kind.from_pretrained(
            settings.folder, dtype=dtype, attn_implementation=attention, local_files_only=True
        ).to(settings.device)
    config = kind.config_class(**own)
    config._attn_implementation = attention
    with torch.device(settings.device), no_init_weights():
        model = kind._from_config(config, dtype=dtype)
    torch.manual_seed(settings.seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(-DUMMY, DUMMY)
    return model


def _failure(text: str) -> RunError:
    state = "out_of_memory" if "memory" in text.lower() else "crashed"
    return RunError(state, f"the engine refused a request: {text}"[:1000])


def engine() -> TransformersEngine:
    """Return an engine that is not started."""
    return TransformersEngine()
