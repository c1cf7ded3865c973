"""Compilation by torch.compile: what it needs, its modes, and what came of it by PyTorch's own counts.

The counts are internal to PyTorch: what a version does not have is None.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from entrypoints.contract.choices import DEFAULT_MODE, INDUCTOR, MAX_AUTOTUNE, REDUCE_OVERHEAD, compiler_of
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.layout import LAYOUT
from entrypoints.devices.pytorch.shared.recorded import COUNTS, RECORDED, REFUSED
from entrypoints.system.gpu_software import obstacle_to_triton

COMPILERS = ("torch._dynamo", "torch._inductor")  # modules that define their exceptions
# The mode of torch.compile by ours, with CUDA graphs and without.
MODES: Mapping[str, tuple[str | None, str | None]] = {
    DEFAULT_MODE: (None, None),
    REDUCE_OVERHEAD: (REDUCE_OVERHEAD, None),
    MAX_AUTOTUNE: (MAX_AUTOTUNE, "max-autotune-no-cudagraphs"),
}
FREEZING = threading.Lock()  # Inductor's switch is one for all threads


def compile_model(model: Any, mode: str | None, graphs: bool = False, compiler: str = INDUCTOR) -> Any:
    """Return a model compiled in a mode, whose calls are recorded and replayed as CUDA graphs or not; without a mode
    the model itself.

    Other compilers than TorchInductor have no modes.
    """
    if not mode:
        return model
    if compiler != INDUCTOR:
        return torch.compile(model, backend=compiler)
    with_graphs, without = MODES[mode]
    return torch.compile(model, mode=with_graphs if graphs else without)


class Frozen:
    """A compiled model for inference whose weights are constants of its code, laid out and fused when it is compiled.

    Nothing may change these weights afterwards: PyTorch compiles again for other tensors, but not for other values.
    """

    def __init__(self, compiled: Any) -> None:
        self.compiled, self.called = compiled, False

    def __call__(self, *arguments: Any) -> Any:
        """Return what the model returns. The first call compiles; later ones with another shape compile unfrozen."""
        if self.called:
            return self.compiled(*arguments)
        from torch._inductor import config

        with FREEZING, config.patch(freezing=True):
            answer = self.compiled(*arguments)
        self.called = True
        return answer

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model."""
        return getattr(self.compiled, name)


def freezable(compiled: Any, changing: Iterable[torch.Tensor]) -> bool:
    """Return whether a compiled model can be frozen: it shares no weight with those that training changes."""
    from torch._inductor import config

    if not hasattr(config, "freezing") or not isinstance(compiled, nn.Module):
        return False
    trained = {weight.data_ptr() for weight in changing}
    return all(weight.data_ptr() not in trained for weight in compiled.parameters())


def require_torch_compile() -> None:
    """Raise RunError (`unsupported`) if this PyTorch cannot compile."""
    if not hasattr(torch, "compile"):
        raise RunError("unsupported", f"--compile: PyTorch {torch.__version__} compiles nothing; from 2.0 on it does")


def require_triton(capability: tuple[int, int] | None = None) -> None:
    """Raise RunError (`unsupported`) if PyTorch cannot compile for a GPU. `capability` is that of a GPU of NVIDIA."""
    require_torch_compile()
    obstacle = obstacle_to_triton(capability)
    if obstacle:
        raise RunError("unsupported", f"--compile: {obstacle}. Leave it out, or take an image that has it")


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Translate errors of calls that may compile. Raises RunError (`compile_failure`) if compilation fails."""
    try:
        yield
    except Exception as error:
        if any(kind.__module__.startswith(COMPILERS) for kind in type(error).__mro__):
            raise RunError("compile_failure", f"--compile: {str(error)[:1000]}") from error
        raise


def counted(graphs: bool) -> dict[str, Any]:
    """Return what PyTorch counted while it compiled in this process, by names of COMPILATION_FACTS.

    With `graphs`, CUDA graphs were asked for.
    """
    from torch._dynamo.utils import counters  # late: it takes seconds to import, and only what compiles needs it

    inductor = counters["inductor"]
    hits, misses, without = (int(inductor.get(f"fxgraph_cache_{name}", 0)) for name in ("hit", "miss", "bypass"))
    return {
        "graphs": int(counters["stats"].get("unique_graphs", 0)),
        "graph_breaks": int(sum(counters["graph_break"].values())),
        "recompilations": _recompilations(),
        "cuda_graphs": recorded_graphs() if graphs else None,
        "cuda_graphs_skipped": int(inductor.get("cudagraph_skips", 0)) + COUNTS[REFUSED] if graphs else None,
        "cache": cache_state(hits, misses + without),
    }


def cache_state(hits: int, misses: int) -> str | None:
    """Return whether compiled code came from Inductor's cache; None if it has none, as before torch 2.4."""
    if not hits and not misses:
        return None
    return "mixed" if hits and misses else "warm" if hits else "cold"


def _recompilations() -> int | None:
    """Return how often functions were compiled again: for other shapes, types or values than before."""
    from torch._dynamo import convert_frame

    compilations = getattr(convert_frame, "FRAME_COMPILE_COUNTER", None)
    return None if compilations is None else int(sum(max(0, count - 1) for count in compilations.values()))


def recorded_graphs() -> int | None:
    """Return the CUDA graphs that Inductor recorded on the current device, from this thread, and our own."""
    try:
        from torch._inductor import cudagraph_trees

        manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        inductors = 0 if manager is None else _nodes([node for nodes in manager.roots.values() for node in nodes])
        return inductors + COUNTS[RECORDED]
    except Exception:  # internal: other versions may have other names, and this is a fact that a result can lack
        return None


def _nodes(nodes: Sequence[Any]) -> int:
    """Return the number of recorded graphs in trees of them."""
    return sum(1 + _nodes([child for children in node.children.values() for child in children]) for node in nodes)


def described(mode: str, graphs: bool, counts: Mapping[str, Any], compiler: str = INDUCTOR) -> str:
    """Return how a model was compiled, in words."""
    how = f"compiled by {compiler} ({mode})"
    if graphs and counts.get("cuda_graphs"):
        how += ", replayed as CUDA graphs"
    if graphs and not counts.get("cuda_graphs"):
        how += ", CUDA graphs asked for and not recorded" if counts.get("cuda_graphs") == 0 else ", CUDA graphs"
    if counts.get("cuda_graphs_skipped"):
        how += ", some parts without CUDA graphs"
    if counts.get("graphs") == 0:
        how += ", no graph captured"
    if counts.get("graph_breaks"):
        how += ", with graph breaks"
    return how


def execution(how: str) -> str:
    """Return how a session runs a model, compiled or not, for the result."""
    return f"{how}, {LAYOUT}; inference with normalisations folded into convolutions"


def planned(compiled: str | None, kind: str) -> str:
    """Return how a session on a kind of device is going to run a model: before it did, nothing is known of graphs."""
    return execution(described(compiled, False, {}, compiler_of(kind)) if compiled else "eager")
