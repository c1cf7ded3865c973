"""Limits of memory: ours, the control groups' on made-up trees, and the kernel's killer for real where it can be."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from processes import child_of, wait_for
from program import ROOT, checked

from entrypoints.system import cgroups, host, memory
from entrypoints.system.facts import fact
from entrypoints.worker import child

# What is estimated of it fits into all limits here; what the double takes does not.
SMALL = ("image_compression", "--batch-size", "2", "--steps", "3", "--warmup-steps", "1")


def tree(tmp_path, monkeypatch, files, membership):
    """A made-up tree of control groups, by path and text."""
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "membership").write_text(membership)
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "membership")
    for name in ("UNIFIED", "LEGACY"):
        files = getattr(cgroups, name)
        monkeypatch.setattr(cgroups, name, files._replace(root=tmp_path / files.root.relative_to(cgroups.CGROUP)))


def group(folder, limit, usage, inactive, legacy=False):
    names = cgroups.LEGACY if legacy else cgroups.UNIFIED
    texts = {names.limit: limit, names.usage: usage, "memory.stat": f"anon 1\n{names.inactive} {inactive}"}
    return {f"{folder}/{name}": f"{text}\n" for name, text in texts.items()}


MIB = 2**20


@pytest.mark.parametrize("legacy", [False, True])
def test_the_tightest_group_bounds_what_is_available(tmp_path, monkeypatch, legacy):
    root = "memory" if legacy else "."
    files = {
        **group(f"{root}/job", 64 * MIB, 60 * MIB, 20 * MIB, legacy),
        **group(f"{root}/job/step", 50 * MIB, 10 * MIB, 5 * MIB, legacy),
        **group(f"{root}/other", MIB, MIB, 0, legacy),
    }
    tree(tmp_path, monkeypatch, files, "4:memory:/job/step\n0::/\n" if legacy else "0::/job/step\n")
    assert host.memory_limit() == 50
    assert memory.available_mib() == 24  # 64 - (60 - 20)


@pytest.mark.parametrize(("limit", "legacy"), [("max", False), (str(2**63 - 4096), True)])
def test_no_limit_is_none(tmp_path, monkeypatch, limit, legacy):
    files = group("memory/job" if legacy else "job", limit, MIB, 0, legacy)
    tree(tmp_path, monkeypatch, files, "4:memory:/job\n" if legacy else "0::/job\n")
    assert fact(host.memory_limit)["value"] is None
    assert memory.available_mib() == pytest.approx(host.meminfo("MemAvailable"), rel=0.1)


def test_a_limit_holds_and_can_be_taken_back():
    code = (
        "from entrypoints.system import memory\n"
        "memory.limit_process(100)\n"
        "try: bytearray(200 * 2**20); print('no limit')\n"
        "except MemoryError: print('refused')\n"
        "memory.unlimit_process()\n"
        "print(len(bytearray(200 * 2**20)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=str(ROOT), stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().split() == ["refused", str(200 * MIB)]


def test_beyond_the_limit_a_run_is_out_of_memory_and_names_it(double):
    assert double.result(*SMALL, "--memory-limit", 1000, fault="feast:1")["status"]["state"] == "completed"
    document = double.result(*SMALL, "--memory-limit", 150, fault="feast:1")
    assert document["status"]["state"] == "out_of_memory" and document["status"]["exit_code"] == 4
    assert "--memory-limit 150 MiB" in document["status"]["message"] and "batch 2," in document["status"]["message"]
    assert document["configuration"]["memory_limit_mib"] == 150


def test_the_killer_is_to_take_the_child_and_not_the_parent(double):
    process = double.start("resnet50", "--duration", 600)
    wait_for(process, "measuring")
    scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (child_of(process), process.pid)]
    process.terminate()
    process.communicate()
    assert scores[0] >= memory.VICTIM > scores[1]


@pytest.fixture()
def small_group():
    """A control group with 150 MiB for whoever joins, of either version, and the file by which one does."""
    refused = []
    with contextlib.ExitStack() as cleanup:
        for parent, limits in places():
            made = attempt(parent, limits, cleanup)
            if isinstance(made, Path):
                yield made / "cgroup.procs"
                return
            refused.append(str(made))
    pytest.skip(f"no control group of memory can be made here: {'; '.join(refused) or 'there are none'}")


def places():
    """Groups below which one may be made, and the files that then limit memory and, with it or alone, swap."""
    for own in cgroups._folders(cgroups.LEGACY)[:1]:
        yield own, {cgroups.LEGACY.limit: 150 * MIB, "memory.memsw.limit_in_bytes": 150 * MIB}
    for above in cgroups._folders(cgroups.UNIFIED):  # a group that holds processes hands no controller down: its parent
        yield above, {cgroups.UNIFIED.limit: 150 * MIB, "memory.swap.max": 0}


def attempt(parent, limits, cleanup):
    """The group, or the error that says why there is none."""
    try:
        return make_group(parent, limits, cleanup)
    except OSError as error:
        return error


def make_group(parent, limits, cleanup):
    """A group below `parent`, gone at the end. Raises OSError."""
    control = parent / "cgroup.subtree_control"
    if control.exists() and "memory" not in control.read_text().split():
        control.write_text("+memory")
        cleanup.callback(control.write_text, "-memory")
    folder = parent / f"sifmark-test-{uuid.uuid4().hex}"
    folder.mkdir()
    cleanup.callback(folder.rmdir)
    (memory_file, most), *others = limits.items()
    (folder / memory_file).write_text(str(most))
    for name, value in others:
        with contextlib.suppress(OSError):  # swap is not accounted for everywhere
            (folder / name).write_text(str(value))
    return folder


def test_the_kernels_killer_takes_the_child_and_the_parent_tells(double, small_group):
    joining = f'echo $$ > {small_group}; exec "$@"'
    argv = ["sh", "-c", joining, "sh", sys.executable, "-s", "-B", str(double.main), *SMALL]
    environment = {**os.environ, "DOUBLE_FAULT": "feast:1"}
    done = subprocess.run(argv, cwd=str(double.folder), env=environment, stdout=subprocess.PIPE, check=False)
    document = checked(done.stdout.decode())
    assert done.returncode == 4
    assert document["status"]["state"] == "out_of_memory"
    assert "SIGKILL" in document["status"]["message"] and "control group 150 MiB" in document["status"]["message"]


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::939524096 (896)MB",
    ],
)
def test_libraries_of_gpus_that_find_no_memory_are_understood(said):
    assert child.describe_failure(RuntimeError(said)).state == "out_of_memory"
    assert child.describe_failure(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")).state == "crashed"


def test_pages_of_mapped_files_are_in_memory_before_they_are_needed(tmp_path):
    """The file system that they come from may be gone by then."""
    size = 4 << 20
    path = tmp_path / "library"
    path.write_bytes(bytes(size))
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
        mapping = mmap.mmap(stream.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    resident = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    begin = ctypes.c_char.from_buffer(mapping)

    def pages():
        libc = ctypes.CDLL(None)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(size), resident) == 0
        return sum(flag & 1 for flag in resident)

    if pages() == len(resident):
        pytest.skip("this file system keeps all pages in memory")
    memory.keep_pages()
    assert pages() == len(resident)
