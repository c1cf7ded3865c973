"""The forms in which a model computes without gradients, each made when it is first asked for."""

from __future__ import annotations

from typing import Any, Callable

from entrypoints.devices.pytorch.shared.inference.generation import StaticGeneration


class InferenceModels:
    """The forms of a model, which are valid until its weights change."""

    def __init__(self, make: Callable[[bool], Any]) -> None:
        """`make` makes one of today's weights, to be recorded as graphs or not."""
        self.make = make
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
            model = self.plain = self.make(False)
        return model

    def replayed_model(self) -> Any:
        """Return the model for inference that is recorded and replayed as CUDA graphs."""
        if self.recorded is None:
            self.recorded = self.make(True)
        return self.recorded

    def generation_of(self, network: Any, static_generation: Callable[[Any], StaticGeneration]) -> StaticGeneration:
        """Return the programs that generate texts by a network."""
        if self.generation is None or self.generation.network is not network:
            self.generation = static_generation(network)
        return self.generation
