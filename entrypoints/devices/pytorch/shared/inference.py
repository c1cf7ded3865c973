"""The forms in which a model computes without gradients, each made when it is first asked for."""

from __future__ import annotations

from typing import Any, Callable

from entrypoints.devices.pytorch.shared.compiling import compile_model
from entrypoints.devices.pytorch.shared.generation import StaticGeneration
from entrypoints.devices.pytorch.strategies.strategy import Strategy
from entrypoints.workloads.pytorch.build import Objective


class InferenceModels:
    """The forms of a model, which are valid until its weights change."""

    def __init__(self, model: Objective, strategy: Strategy, compiled: str | None) -> None:
        self.source, self.strategy, self.compiled = model, strategy, compiled
        self.forget()

    def forget(self) -> None:
        """Forget every form, since the weights change."""
        self.plain: Any = None  # or compiled
        self.recorded: Any = None  # as graphs, by one thread
        self.generation: StaticGeneration | None = None  # of the network of `plain`

    def model(self) -> Any:
        """Return the model for inference. Concurrent request streams may each prepare one: all are equal."""
        model = self.plain
        if model is None:
            model = self.plain = compile_model(self.strategy.inference_model(self.source), self.compiled)
        return model

    def replayed_model(self) -> Any:
        """Return the model for inference that is recorded and replayed as CUDA graphs."""
        if self.recorded is None:
            self.recorded = compile_model(self.strategy.inference_model(self.source), self.compiled, graphs=True)
        return self.recorded

    def generation_of(self, network: Any, static_generation: Callable[[Any], StaticGeneration]) -> StaticGeneration:
        """Return the programs that generate texts by a network."""
        if self.generation is None or self.generation.network is not network:
            self.generation = static_generation(network)
        return self.generation
