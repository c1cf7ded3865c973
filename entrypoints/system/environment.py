"""What a user's environment changes about the speed of a run: settings of libraries, and libraries loaded first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

# Variables that oneDNN, MKL, OpenMP, PyTorch, TensorFlow, CUDA, ROCm, oneAPI, Poplar, the C library and the dynamic
# loader read, by their prefixes. An image's own ones are among them.
PREFIXES = (
    *("ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "BLIS_", "ATEN_", "TORCH", "PYTORCH_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "HIP_", "HSA_", "ROC", "RCCL_", "MIOPEN_", "AMD_"),
    *(
        "TF_",
        "XLA_",
        "POPLAR_",
        "POPART_",
        "POPTORCH_",
        "POPTORCH",
        "ZE_",
        "SYCL_",
        "IPEX_",
        "IGC_",
        "NEOReadDebugKeys",
    ),
    *("LD_PRELOAD", "LD_AUDIT", "LD_BIND_NOW", "GLIBC_TUNABLES", "MALLOC_", "JEMALLOC_", "TCMALLOC_", "PYTHONMALLOC"),
)
PRELOAD_FILE = Path("/etc/ld.so.preload")  # ld.so(8)
LONGEST = 1000  # characters of a value


def described(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the part `environment` of a result: variables by name, and libraries that are loaded before all others."""
    chosen = {name: value[:LONGEST] for name, value in sorted(environment.items()) if name.startswith(PREFIXES)}
    return {"variables": chosen, "preloaded": preloaded(environment)}


def preloaded(environment: Mapping[str, str]) -> list[str]:
    """Return the libraries that the dynamic loader puts before those of a program, by variable and by file."""
    try:
        of_system = PRELOAD_FILE.read_text("utf-8", "replace")
    except OSError:
        of_system = ""
    of_user = environment.get("LD_PRELOAD", "").replace(":", " ")
    lines = (line.partition("#")[0] for line in of_system.splitlines())
    return [name[:LONGEST] for text in (of_user, *lines) for name in text.replace(":", " ").split()]
