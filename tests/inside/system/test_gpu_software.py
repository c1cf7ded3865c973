"""What a run on a GPU needs beside its framework: where bases and hosts keep it, and what does without it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.system import gpu_software

NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22)\n"


@pytest.fixture(autouse=True)
def forgotten():
    for remembered in (gpu_software.newer_driver, gpu_software.fault_of_compiler):
        remembered.cache_clear()
    yield
    for remembered in (gpu_software.newer_driver, gpu_software.fault_of_compiler):
        remembered.cache_clear()


def library(path, answer=0):
    """A library with the one function that shows whether a driver starts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(f"int cuInit(unsigned flags) {{ return {answer}; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return path


@pytest.fixture
def base(monkeypatch, tmp_path):
    """NVIDIA's base under Apptainer: `base(driver, compat)` has a kernel driver and a newer library in the image."""

    def make(driver=None, compat=None, answer=0, bound=True):
        monkeypatch.setattr(gpu_software, "BOUND", tmp_path / "libs")
        monkeypatch.setattr(gpu_software, "COMPAT", tmp_path / "compat")
        monkeypatch.setattr(gpu_software, "KERNEL_DRIVER", tmp_path / "version")
        if driver:
            (tmp_path / "version").write_text(NVRM.format(driver))
        if bound:
            library(tmp_path / "libs" / "libcuda.so.1")
        if compat:
            folder = library(tmp_path / "compat" / "lib.real" / f"libcuda.so.{compat}", answer).parent
            (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{compat}")
        return tmp_path

    return make


def found_by_triton(environment, cached):
    """The folders in which Triton looks for libcuda, given those that the linker's cache lists (libcuda_dirs())."""
    named = environment.get("TRITON_LIBCUDA_PATH")
    folders = [named] if named else cached or environment.get("LD_LIBRARY_PATH", "").split(":")
    return any(Path(folder, "libcuda.so.1").exists() for folder in folders)


def test_triton_finds_the_driver_that_apptainer_binds_though_the_linkers_cache_is_stale(base):
    root = base("580.65.06")
    stale = [str(root / "compat" / "lib")]  # which does not exist: NVIDIA's entrypoint would make it
    environment = {"LD_LIBRARY_PATH": str(root / "libs")}
    assert not found_by_triton(environment, stale), "as without sifmark"
    with gpu_software.driver_for_triton(environment):
        folder = environment["TRITON_LIBCUDA_PATH"]
        assert found_by_triton(environment, stale)
        linked = subprocess.run(
            ["gcc", "-shared", "-o", str(root / "out.so"), "-L", folder, "-lcuda"], stderr=subprocess.PIPE
        )
    assert linked.returncode == 0, linked.stderr.decode()
    assert not Path(folder).exists()


def test_without_a_driver_that_is_bound_nothing_is_named(base):
    root = base(bound=False)
    environment = gpu_software.for_worker({"LD_LIBRARY_PATH": str(root)})
    with gpu_software.driver_for_triton(environment):
        assert "TRITON_LIBCUDA_PATH" not in environment
    assert "TRITON_LIBCUDA_PATH" not in environment and environment["LD_LIBRARY_PATH"] == str(root)


def test_what_the_user_chose_for_triton_stays(base):
    base("580.65.06")
    chosen = {"TRITON_LIBCUDA_PATH": "/mine", "CC": "tcc"}
    environment = gpu_software.for_worker(chosen)
    with gpu_software.driver_for_triton(environment):
        assert environment == chosen


@pytest.mark.parametrize(
    ("driver", "compat", "answer", "newer"),
    [
        ("580.65.06", "595.71.05", 0, True),
        ("580.65.06", "595.71.05", 804, False),  # CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: no datacenter GPU
        ("580.65.06", "595.71.05", 256, False),  # whose last byte is 0
        ("595.10", "595.71.05", 0, False),
        ("600.10", "595.71.05", 0, False),
        (None, "595.71.05", 0, False),
        ("580.65.06", None, 0, False),
    ],
)
def test_a_newer_driver_library_of_the_image_is_used_where_it_starts(base, driver, compat, answer, newer):
    root = base(driver, compat, answer)
    folder = root / "compat" / "lib.real"
    assert gpu_software.newer_driver() == (folder if newer else None)
    environment = gpu_software.for_worker({"LD_LIBRARY_PATH": "/host"})
    assert environment["LD_LIBRARY_PATH"] == (f"{folder}:/host" if newer else "/host")
    assert environment.get("TRITON_LIBCUDA_PATH") == (str(folder) if newer else None)


def test_the_driver_library_in_use_is_named_by_its_version(base):
    root = base("580.65.06", "595.71.05")
    program = (
        "from pathlib import Path; from entrypoints.system import gpu_software as g; "
        f"g.KERNEL_DRIVER = Path({str(root / 'version')!r}); print(g.driver_library())"
    )
    for folder, version in ((root / "compat" / "lib.real", "595.71.05"), (root / "libs", "580.65.06")):
        said = subprocess.run(
            [sys.executable, "-c", program],
            env={"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])},
            stdout=subprocess.PIPE,
            check=True,
        )
        assert said.stdout.decode().strip() == version


def test_without_a_driver_library_there_is_no_version(monkeypatch):
    def missing(_):
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_software.driver_library() is None


@pytest.mark.parametrize(
    ("release", "triton", "capability", "lacks"),
    [
        (None, True, None, "PyTorch is not here"),
        ("1.13.1", True, None, "PyTorch 1 compiles nothing"),
        ("2.9.1", False, (9, 0), "Triton is not here"),
        ("2.9.1", True, (6, 1), "Triton compiles for compute capability 7.0 and newer, and not for sm_61"),
        ("2.9.1", True, (7, 0), None),
        ("2.9.1", True, None, None),
    ],
)
def test_what_triton_needs_is_looked_for_without_an_import(monkeypatch, release, triton, capability, lacks):
    def version(_):
        if release is None:
            raise importlib.metadata.PackageNotFoundError
        return release

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: (triton or None) if name == "triton" else find(name))
    monkeypatch.setattr(gpu_software, "fault_of_compiler", lambda compiler: None)
    assert gpu_software.obstacle_to_triton(capability) == lacks


def fault(compiler):
    return str(gpu_software.fault_of_compiler(compiler))


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_is_one_that_builds_with_the_headers_of_python(monkeypatch, tmp_path):
    assert gpu_software.fault_of_compiler(shutil.which("gcc")) is None
    assert "there is no gcc or clang" in fault(None)
    broken = script(tmp_path / "cc", "echo 'launcher.c:1:10: fatal error: stdlib.h' >&2; exit 1")
    assert "stdlib.h" in fault(broken)
    assert "could not be tried" in fault(str(tmp_path / "absent"))
    gpu_software.fault_of_compiler.cache_clear()
    monkeypatch.setattr(gpu_software.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    assert f"there is no {tmp_path}/Python.h" in fault(shutil.which("gcc"))


def test_the_compiler_is_the_users_else_the_systems_else_that_of_rocm(monkeypatch, tmp_path):
    clang = tmp_path / "_rocm_sdk_core" / "lib" / "llvm" / "bin" / "clang"
    clang.parent.mkdir(parents=True)
    (tmp_path / "_rocm_sdk_core" / "__init__.py").touch()
    script(clang, "true")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert gpu_software.c_compiler({"CC": "mine"}) == "mine"
    assert gpu_software.c_compiler({}) == shutil.which("gcc")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_software.c_compiler({}) == str(clang)
    assert gpu_software.for_worker({})["CC"] == str(clang)
    clang.unlink()
    assert gpu_software.c_compiler({}) is None and "CC" not in gpu_software.for_worker({})


def test_rocm_is_looked_for_in_its_package_first(monkeypatch, tmp_path):
    (tmp_path / "_rocm_sdk_core").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", "/host/rocm")
    expected = [tmp_path / "_rocm_sdk_core", Path("/opt/rocm"), Path("/host/rocm")]
    assert list(gpu_software.rocm_roots()) == expected
