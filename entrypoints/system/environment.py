"""What a user's environment changes about the speed of a run: settings of libraries, and libraries loaded first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

# Variables that oneDNN, MKL, OpenMP, PyTorch, TensorFlow, CUDA, ROCm, oneAPI, Poplar, Gaudi, networks, the C library,
# the dynamic loader and Python read, by their prefixes. An image's own ones are among them. Prefixes are no shorter
# than this: Terraform's TF_VAR_*, TF_TOKEN_* and TF_CLI_ARGS hold what nobody else may read, and Slurm's
# GPU_DEVICE_ORDINAL is another one in every job.
PREFIXES = (
    *("ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "BLIS_"),
    *("ATEN_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_"),
    *("CUDA_", "CUBLAS_", "CUBLASLT_", "CUDNN_", "NVIDIA_", "NCCL_"),
    *("HIP_", "HIPBLASLT_", "HSA_", "ROCR_", "ROCM_", "ROCBLAS_", "RCCL_", "MIOPEN_", "AMD_", "ROC_"),
    *("GPU_BLIT_", "GPU_CP_DMA_", "GPU_ENABLE_", "GPU_FORCE_", "GPU_MAX_", "GPU_NUM_COMPUTE_", "GPU_PINNED_"),
    *("GPU_RESOURCE_CACHE_", "GPU_SINGLE_ALLOC_", "GPU_STREAMOPS_"),
    *("TF_AUTOTUNE_", "TF_AUTO_MIXED_PRECISION_", "TF_CONV2D_", "TF_CPP_", "TF_CPU_", "TF_CUBLAS", "TF_CUDA_"),
    *("TF_CUDNN_", "TF_DATA_EXPERIMENT_", "TF_DEBUG_CUDNN_", "TF_DETERMINISTIC_", "TF_DISABLE_", "TF_EAGER_"),
    *("TF_ENABLE_", "TF_FORCE_", "TF_FP16_", "TF_GPU_", "TF_GRAPH_", "TF_JITRT_", "TF_MATMUL_", "TF_MKL_", "TF_NUM_"),
    *("TF_ONEDNN_", "TF_OVERRIDE_GLOBAL_", "TF_PER_DEVICE_", "TF_POPLAR_", "TF_ROCM_", "TF_RUN_HANDLER_"),
    *("TF_SET_ONEDNN_", "TF_SYNC_ON_FINISH", "TF_USE_", "TF_XLA_", "XLA_"),
    *("POPLAR_", "POPART_", "POPTORCH_", "ZE_", "SYCL_", "IPEX_", "IGC_", "NEOReadDebugKeys"),
    *("PT_HPU_", "PT_HPUGRAPH_", "HABANA_", "HCCL_", "HLS_MODULE_ID"),
    *("LD_PRELOAD", "LD_AUDIT", "LD_BIND_NOW", "LD_LIBRARY_PATH", "GLIBC_TUNABLES"),
    *("GLOO_", "CCL_", "FI_", "UCX_"),
    *("MALLOC_", "JEMALLOC_", "TCMALLOC_", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONPATH"),
)
SECRETS = ("AUTH", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN")  # parts of names whose values nobody else may read
PRELOAD_FILE = Path("/etc/ld.so.preload")  # ld.so(8)
LONGEST = 1000  # characters of a value


def described(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the part `environment` of a result: variables by name, and libraries that are loaded before all others."""
    chosen = {readable(name): readable(value) for name, value in sorted(environment.items()) if _is_recorded(name)}
    return {"variables": chosen, "preloaded": preloaded(environment)}


def _is_recorded(name: str) -> bool:
    return name.startswith(PREFIXES) and not any(part in name for part in SECRETS)


def readable(value: str) -> str:
    """Return a text that JSON can hold: what is not UTF-8 is replaced."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:LONGEST]


def preloaded(environment: Mapping[str, str]) -> list[str]:
    """Return the libraries that the dynamic loader puts before those of a program, by variable and by file."""
    try:
        of_system = PRELOAD_FILE.read_text("utf-8", "replace")
    except OSError:
        of_system = ""
    of_user = environment.get("LD_PRELOAD", "").replace(":", " ")
    lines = (line.partition("#")[0] for line in of_system.splitlines())
    return [readable(name) for text in (of_user, *lines) for name in text.replace(":", " ").split()]
