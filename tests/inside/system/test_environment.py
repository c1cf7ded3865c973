"""What of an environment is part of a result: settings of libraries, and nothing that is a secret."""

from __future__ import annotations

import json

import pytest

from entrypoints.system import environment


@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "LD_PRELOAD", "PYTHONPATH", "CUBLASLT_NUM", "TF_XLA_FLAGS"),
        *("ROC_ACTIVE_WAIT_TIMEOUT", "ROC_AQL_QUEUE_SIZE", "GPU_MAX_HW_QUEUES", "GPU_SINGLE_ALLOC_PERCENT"),
        *("TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "TF_NUM_INTEROP_THREADS", "TF_GPU_ALLOCATOR"),
        *("TF_CUDNN_USE_AUTOTUNE", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_DETERMINISTIC_OPS", "TF_USE_CUBLASLT"),
        *("TF_AUTOTUNE_THRESHOLD", "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE", "TF_SET_ONEDNN_FPMATH_MODE"),
        *("TF_FP16_MATMUL_USE_FP32_COMPUTE", "TF_MATMUL_AUTOTUNE_ENABLE", "TF_OVERRIDE_GLOBAL_THREADPOOL"),
        *("TF_PER_DEVICE_MEMORY_LIMIT_MB", "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL", "TF_ROCM_FMHA"),
        *("PT_HPU_LAZY_MODE", "PT_HPU_MAX_COMPOUND_OP_SIZE", "HABANA_PROFILE", "HCCL_OVER_OFI"),
    ],
)
def test_what_changes_speed_is_recorded(name):
    assert environment.described({name: "1", "HOME": "/root"})["variables"] == {name: "1"}


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_API_KEY",
        "TF_TOKEN_app_io",
        "TF_VAR_db",
        "ROCKET_PASSWORD",
        "TORCHSERVE_TOKEN",
        "CUDA_AUTH",
        *("TF_VAR_region", "TF_TOKEN_example_com", "TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_CONFIG_FILE"),
        *("TF_DATA_DIR", "TF_ENCRYPTION", "TF_HTTP_USERNAME", "TF_CLOUD_ORGANIZATION", "TF_LOG_PATH", "TF_WORKSPACE"),
        *("GPU_MAX_TOKEN", "ROC_SECRET", "GPU_DEVICE_ORDINAL", "GPU_ACCOUNT", "ROCK_AND_ROLL"),
        "HOME",
    ],
)
def test_no_secret_and_no_foreign_variable_is(name):
    assert environment.described({name: "hunter2"})["variables"] == {}


def test_what_is_not_utf8_is_replaced():
    described = environment.described({"OMP_\udcff": "\udcfe", "LD_PRELOAD": "a.so:\udcff.so"})
    assert described["variables"] == {"OMP_\ufffd": "\ufffd", "LD_PRELOAD": "a.so:\ufffd.so"}
    assert described["preloaded"][:2] == ["a.so", "\ufffd.so"]
    json.dumps(described, ensure_ascii=False).encode()


def test_a_long_value_is_cut():
    assert len(environment.described({"OMP_PLACES": "x" * 5000})["variables"]["OMP_PLACES"]) == environment.LONGEST
