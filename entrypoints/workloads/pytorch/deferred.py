"""Weights that are made when a session wants them, tensor by tensor: nothing holds the whole of a large model.

A network is built on the meta device, where tensors have a shape and no memory, and the operations that initialise it
are recorded. Later they are done for one tensor after the other. The weights are bit by bit those of a network that is
built at once: random numbers of the host are drawn in the order in which its constructor draws them. Those of larger
networks than `DRAWN_ON_HOST` are drawn on the hardware, by a generator for the name of each weight: other numbers of
the same distribution, which do not depend on the number of ranks.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Mapping, NamedTuple, Sequence, TypeVar

import torch
from torch import nn

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # of a version that has another place for it
    TorchDispatchMode = None  # type: ignore[assignment, misc]

DRAWN_ON_HOST = 2_000_000_000  # weights: one core draws about 10^8 normal numbers in a second
M = TypeVar("M", bound=nn.Module)
OVERWRITING = ("fill_", "normal_", "uniform_", "zero_")  # what comes before one of these has no effect on a tensor
RANDOM = ("normal_", "uniform_")
CHANGING = ("add_", "clamp_", "div_", "erfinv_", "mul_", "sub_")  # others of numbers, which torch.nn.init does
# From this version on there are a context in which tensors are made on a device, and tags of random operations.
AVAILABLE = TorchDispatchMode is not None and hasattr(torch, "Tag") and torch.__version__ >= (2, 1)


class Initialising(NamedTuple):
    """An operation in place on a tensor, which is known by its storage."""

    storage: int
    name: str
    operation: Any
    arguments: Sequence[Any]
    named: Mapping[str, Any]

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return self.name in RANDOM

    def on(self, tensor: torch.Tensor, generator: torch.Generator | None) -> None:
        """Do it to another tensor, with random numbers of a generator."""
        self.operation(tensor, *self.arguments, **self.named, **({"generator": generator} if self.random else {}))


class Place(NamedTuple):
    """Where a module has a tensor."""

    owner: nn.Module
    name: str


class Wanted(NamedTuple):
    """A tensor that is not made yet: its full name, its places, and the numbers of the operations that make it."""

    name: str
    meta: torch.Tensor
    places: list[Place]
    making: list[int]


if AVAILABLE:

    class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Records what initialises tensors. `complete` is False after anything that cannot be done again."""

        def __init__(self) -> None:
            super().__init__()
            self.recorded: list[Initialising] = []
            self.kept: list[torch.Tensor] = []  # so that no later tensor gets the storage of an earlier one
            self.sizes: dict[int, int] = {}  # numbers of each storage, by operations on the whole of it
            self.complete = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled meanwhile, and skipping it would import it

        def __torch_dispatch__(self, operation: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
            """Do an operation; only record it if it is in place, since PyTorch imports a second of code for those."""
            if operation._schema.is_mutable:
                self.record(operation, *arguments, **(named or {}))
                return arguments[0]
            if torch.Tag.nondeterministic_seeded in operation.tags:
                self.complete = False
            return operation(*arguments, **(named or {}))

        def record(self, operation: Any, tensor: Any, *arguments: Any, **named: Any) -> None:
            """Record an operation on a whole tensor."""
            name = operation._schema.name.rpartition("::")[2]
            known = name in (*OVERWRITING, *CHANGING) and named.pop("generator", None) is None
            numbers = all(isinstance(each, (int, float)) for each in (*arguments, *named.values()))
            if not known or not numbers or tensor.device.type != "meta" or not tensor.is_contiguous():
                self.complete = False
                return
            storage = storage_of(tensor)
            self.kept.append(tensor.detach())
            if self.sizes.setdefault(storage, tensor.numel()) != tensor.numel():
                self.complete = False  # of a part
            self.recorded.append(Initialising(storage, name, operation, arguments, named))


def storage_of(tensor: torch.Tensor) -> int:
    """Return what is equal of tensors in the same memory."""
    return int(tensor.untyped_storage()._cdata)


class DeferredWeights:
    """The weights and buffers of a model on the meta device, which `fill` makes module by module."""

    def __init__(self, model: nn.Module, recorded: Sequence[Initialising], sizes: dict[int, int], seed: int) -> None:
        self.model, self.recorded, self.sizes, self.seed = model, recorded, sizes, seed
        self.wanted: dict[int, Wanted] = {}
        for path, owner in model.named_modules():
            for name, tensor in [*owner._parameters.items(), *owner._buffers.items()]:
                if tensor is not None and tensor.device.type == "meta":
                    wanted = Wanted(f"{path}.{name}", tensor, [], [])
                    self.wanted.setdefault(storage_of(tensor), wanted).places.append(Place(owner, name))
        for number, each in enumerate(recorded):
            if each.storage in self.wanted:
                making = self.wanted[each.storage].making
                if each.name in OVERWRITING:
                    making.clear()
                making.append(number)
        self.drawn_on_host = sum(wanted.meta.numel() for wanted in self.wanted.values()) <= DRAWN_ON_HOST
        self.generator, self.drawn = torch.Generator().manual_seed(seed), 0  # the operations before are done
        self.states: dict[int, torch.Tensor] = {}  # of the generator, before operations that were passed over
        self.scratch = torch.empty(0)

    @property
    def possible(self) -> bool:
        """Whether the operations make every tensor as a constructor would: each from its beginning, by one draw."""
        made = all(
            wanted.making
            and self.recorded[wanted.making[0]].name in OVERWRITING
            and self.sizes[storage] == wanted.meta.numel()
            and sum(self.recorded[number].random for number in wanted.making) <= 1
            for storage, wanted in self.wanted.items()
        )
        return made and all(tensor.device.type == "meta" for tensor in self.model.state_dict().values())

    def fill(self, module: nn.Module, hardware: torch.device, recurse: bool = True) -> None:
        """Make what is wanted in a module, with those in it or without, on the hardware.

        A weight that others have too is made for them all.
        """
        for owner in module.modules() if recurse else [module]:
            for tensor in [*owner._parameters.values(), *owner._buffers.values()]:
                if tensor is not None and tensor.device.type == "meta":
                    self.place(self.wanted.pop(storage_of(tensor)), hardware)

    def place(self, wanted: Wanted, hardware: torch.device) -> None:
        """Make a tensor, and give it to all who have it."""
        made: Any = self.made(wanted, hardware)
        if isinstance(wanted.meta, nn.Parameter):
            made = nn.Parameter(made, requires_grad=wanted.meta.requires_grad)
        for owner, name in wanted.places:
            setattr(owner, name, made)

    @torch.no_grad()
    def made(self, wanted: Wanted, hardware: torch.device) -> torch.Tensor:
        """Return a tensor with its first values, on the hardware."""
        shape, dtype = wanted.meta.shape, wanted.meta.dtype
        if not self.drawn_on_host:
            tensor = torch.empty(shape, dtype=dtype, device=hardware)
            generator = torch.Generator(hardware).manual_seed(seed_of(self.seed, wanted.name))
            for number in wanted.making:
                self.recorded[number].on(tensor, generator)
            return tensor
        tensor = torch.empty(shape, dtype=dtype)
        for number in wanted.making:
            each = self.recorded[number]
            each.on(tensor, self.generator_at(number) if each.random else None)
            self.drawn += self.drawn == number
        return tensor.to(hardware)

    def generator_at(self, number: int) -> torch.Generator:
        """Return a generator in the state that an operation finds, after everything before has drawn its numbers."""
        if number < self.drawn:
            return torch.Generator().set_state(self.states.pop(number))
        later = {each for wanted in self.wanted.values() for each in wanted.making}
        while self.drawn < number:
            each = self.recorded[self.drawn]
            if each.random:
                if self.drawn in later:
                    self.states[self.drawn] = self.generator.get_state()
                each.on(self.thrown_away(self.sizes[each.storage]), self.generator)
            self.drawn += 1
        return self.generator

    def thrown_away(self, numbers: int) -> torch.Tensor:
        """Return memory for so many numbers that nobody reads."""
        if self.scratch.numel() < numbers:
            self.scratch = torch.empty(numbers)
        return self.scratch[:numbers]


def seed_of(seed: int, name: str) -> int:
    """Return the seed of the random numbers of a weight."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")


def deferred(build: Callable[[], M], seed: int) -> tuple[M, DeferredWeights] | None:
    """Return a model on the meta device with its weights; None if this PyTorch cannot defer all that `build` does."""
    if not AVAILABLE:
        return None
    recorder = Recorder()
    with torch.device("meta"), recorder:
        model = build()
    weights = DeferredWeights(model, recorder.recorded, recorder.sizes, seed)
    return (model, weights) if recorder.complete and weights.possible else None
