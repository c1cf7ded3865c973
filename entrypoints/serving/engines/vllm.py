"""vLLM by its AsyncLLM, without a port, a tokenizer or weights to fetch. It computes in processes of its own."""

from __future__ import annotations

import os
from typing import Any, AsyncIterator, Mapping, Sequence

# Before it is imported: it reads them then.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, on a CPU
}.items():
    os.environ.setdefault(_name, _value)

import vllm  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.engine.exceptions import EngineDeadError  # noqa: E402

from entrypoints.contract.choices import ROWWISE, TENSORWISE  # noqa: E402
from entrypoints.contract.messages import EngineFacts  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.serving.checkpoint import DTYPES  # noqa: E402
from entrypoints.serving.engine import EngineSettings  # noqa: E402

# What makes FP8 of weights as they are loaded. Inputs are scaled as they come, by token where a kernel can.
QUANTIZATION = {None: None, TENSORWISE: "fp8", ROWWISE: "fp8_per_channel"}
ROUTING, AT_RANDOM = "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "uniform_random"
LIKELIEST = 5  # tokens whose log-probabilities are compared
SEQUENCES = {"cpu": 64, "cuda": 1024}  # computed together, at most
MEMORY = 0.9  # of a GPU


class VllmEngine:
    """The client of vLLM's engine."""

    def __init__(self) -> None:
        self.llm: Any = None

    async def start(self, settings: EngineSettings) -> EngineFacts:
        """Start the processes of the engine, and wait until the model is there."""
        on_cpu = settings.device == "cpu"
        if settings.scaling and not current_platform.supports_fp8():
            # It would multiply in bf16, with weights that are stored in FP8.
            raise RunError("unsupported", "--precision fp8: this device multiplies no FP8, take --precision bf16")
        os.environ.pop(ROUTING, None)
        drawn = settings.dummy and not on_cpu  # on a CPU, vLLM 0.30 draws what its own kernel does not take
        if drawn:  # made-up weights would send tokens to experts by noise
            os.environ[ROUTING] = AT_RANDOM
        arguments = AsyncEngineArgs(
            model=settings.folder,
            load_format="dummy" if settings.dummy else "safetensors",
            skip_tokenizer_init=True,
            dtype=DTYPES[settings.precision],
            max_model_len=settings.longest,
            max_num_seqs=SEQUENCES[settings.device],
            quantization=QUANTIZATION[settings.scaling],
            tensor_parallel_size=settings.devices,
            enable_prefix_caching=False,
            enforce_eager=on_cpu,
            seed=settings.seed,
            disable_log_stats=True,
            **({} if on_cpu else {"gpu_memory_utilization": MEMORY}),
        )
        self.llm = AsyncLLM.from_engine_args(arguments)
        config = self.llm.vllm_config
        return EngineFacts(
            "vllm",
            vllm.__version__,
            {
                "prefix_caching": bool(config.cache_config.enable_prefix_caching),
                "cuda_graphs": "none"
                if config.model_config.enforce_eager
                else str(config.compilation_config.cudagraph_mode),
                "compiled": not config.model_config.enforce_eager,
                "weights": "made up" if settings.dummy else "read",
                "quantization": config.model_config.quantization,
                "tensor_parallel": config.parallel_config.tensor_parallel_size,
                "memory_fraction": None if on_cpu else config.cache_config.gpu_memory_utilization,
                "kv_cache_dtype": str(config.cache_config.cache_dtype),
                "block_size": config.cache_config.block_size,
                "max_sequences": config.scheduler_config.max_num_seqs,
                "max_batched_tokens": config.scheduler_config.max_num_batched_tokens,
                "chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
                "expert_routing": AT_RANDOM if drawn else "by the weights",
            },
        )

    async def stream(self, name: str, prompt: Sequence[int], new_tokens: int) -> AsyncIterator[int]:
        """Yield the number of new tokens that arrived, as often as some do."""
        async for output in self._outputs(name, prompt, _greedy(new_tokens)):
            yield len(output.outputs[0].token_ids)

    async def first_token(self, prompt: Sequence[int]) -> Mapping[int, float]:
        """Return the log-probabilities of the likeliest tokens after a prompt."""
        async for output in self._outputs(f"first {id(prompt)}", prompt, _greedy(1, logprobs=LIKELIEST)):
            given = output.outputs[0].logprobs
            if given:
                return {token: entry.logprob for token, entry in given[0].items()}
        return {}

    async def _outputs(self, name: str, prompt: Sequence[int], how: SamplingParams) -> AsyncIterator[Any]:
        try:
            async for output in self.llm.generate({"prompt_token_ids": list(prompt)}, how, request_id=name):
                yield output
        except EngineDeadError as error:
            raise RunError("crashed", f"the engine has died: {error}"[:1000]) from None
        except ValueError as error:  # a length that it refuses
            raise RunError("crashed", f"the engine refused a request: {error}"[:1000]) from None

    async def close(self) -> None:
        """End the processes of the engine."""
        llm, self.llm = self.llm, None
        if llm is not None:
            llm.shutdown()


def _greedy(new_tokens: int, logprobs: int | None = None) -> SamplingParams:
    return SamplingParams(
        max_tokens=new_tokens,
        min_tokens=new_tokens,
        ignore_eos=True,
        temperature=0.0,
        detokenize=False,
        logprobs=logprobs,
        output_kind=RequestOutputKind.DELTA,
    )


def engine() -> VllmEngine:
    """Return an engine that is not started."""
    return VllmEngine()
