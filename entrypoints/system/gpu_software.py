"""What a run on a GPU needs of the software around its framework, where bases and hosts keep it in unusual places:
NVIDIA's driver library, a C compiler for Triton, and the root of ROCm.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Iterator, Mapping, MutableMapping, Sequence

VOLTA = (7, 0)  # compute capability: the first for which Triton compiles
# Apptainer's --nv binds the host's driver library here. Triton asks the linker's cache instead (libcuda_dirs() in
# triton/backends/nvidia/driver.py), and that of NVIDIA's images names a folder which only their own entrypoint makes.
# Hosts often have no `libcuda.so`, which older versions of Triton link with.
BOUND = Path("/.singularity.d/libs")
LIBCUDA = "libcuda.so.1"
TRITON_FOLDER = "TRITON_LIBCUDA_PATH"  # the variable that names another folder
KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
COMPAT = Path("/usr/local/cuda/compat")  # in NVIDIA's images
STARTS = f"import ctypes, sys; sys.exit(ctypes.CDLL({LIBCUDA!r}).cuInit(0) != 0)"
PATIENCE = 60.0  # s for a driver to start
ROCM_PACKAGE = "_rocm_sdk_core"  # of ROCm 10, which is in Python packages; before, it was in /opt/rocm
PROGRAM = "#include <Python.h>\n"


def for_worker(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that uses a GPU called cuda: with NVIDIA's newer driver library before the
    host's if it works here, and with the compiler that Triton calls."""
    changed = dict(environment)
    newer = newer_driver()
    if newer is not None:
        changed = _with_libraries(newer, environment)
        changed.setdefault(TRITON_FOLDER, str(newer))
    compiler = c_compiler(environment)
    if compiler is not None:
        changed.setdefault("CC", compiler)
    return changed


@contextlib.contextmanager
def driver_for_triton(environment: MutableMapping[str, str]) -> Iterator[None]:
    """In the block, let Triton find the driver library that Apptainer binds, under both of its names, unless a folder
    is named."""
    if TRITON_FOLDER in environment or not (BOUND / LIBCUDA).exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        for name in ("libcuda.so", LIBCUDA):
            Path(folder, name).symlink_to(BOUND / LIBCUDA)
        environment[TRITON_FOLDER] = folder
        yield


@functools.lru_cache(maxsize=None)
def newer_driver() -> Path | None:
    """Return the folder of the driver library in the image if it is of a newer major version than the host's kernel
    driver, and works with it: NVIDIA's forward compatibility, which datacenter GPUs have.

    NVIDIA's entrypoint, which ours replaces, decides in this way, and the hook of its container toolkit by the version
    alone (cmd/nvidia-cdi-hook/cudacompat): with this Apptainer and Docker run the same library.
    """
    host = kernel_driver()
    for library in sorted((*COMPAT.glob("libcuda.so.*.*"), *COMPAT.glob("lib*/libcuda.so.*.*"))):
        if host and _major(_version(library.name)) > _major(host) and _starts(library.parent):
            return library.parent
    return None


def _starts(folder: Path) -> bool:
    try:
        command = [sys.executable, "-I", "-c", STARTS]
        env = _with_libraries(folder, os.environ)
        return subprocess.run(command, env=env, stderr=subprocess.DEVNULL, timeout=PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _with_libraries(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the libraries of a folder come before others."""
    folders = filter(None, (str(folder), environment.get("LD_LIBRARY_PATH")))
    return {**environment, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def kernel_driver() -> str | None:
    """Return the version of NVIDIA's kernel driver, such as 580.65.06; None if there is none."""
    try:
        return _version(KERNEL_DRIVER.read_text("ascii", "replace"))
    except OSError:
        return None


def driver_library() -> str | None:
    """Return the version of NVIDIA's driver library that this process uses: the kernel driver's, or a newer one.

    The library is loaded by its name, as frameworks do it, and not started.
    """
    try:
        ctypes.CDLL(LIBCUDA)
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return None
    names = re.findall(r"/libcuda\.so\.(\d[\d.]+)$", maps, re.MULTILINE)
    return next((name for name in names if "." in name), None) or kernel_driver()


def _version(text: str) -> str | None:
    match = re.search(r"\d{3,}(\.\d+)+", text)
    return match and match.group()


def _major(version: str | None) -> int:
    return int(version.split(".")[0]) if version else 0


def obstacle_to_triton(capability: tuple[int, int] | None = None) -> str | None:
    """Return why PyTorch cannot compile for a GPU here, None if it can. Nothing is imported.

    Triton does it, and builds a launcher in C for each kernel (triton/runtime/build.py). `capability` is that of a GPU
    of NVIDIA.
    """
    try:
        release = importlib.metadata.version("torch").split(".")[0]
    except importlib.metadata.PackageNotFoundError:
        return "PyTorch is not here"
    if int(release) < 2:
        return f"PyTorch {release} compiles nothing"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not here"
    if capability is not None and capability < VOLTA:
        return "Triton compiles for compute capability {}.{} and newer, and not for sm_{}{}".format(*VOLTA, *capability)
    return fault_of_compiler(c_compiler(os.environ))


@functools.lru_cache(maxsize=None)
def fault_of_compiler(compiler: str | None) -> str | None:
    """Return why a C compiler builds no library with Python's headers, None if it does: it is tried."""
    if compiler is None:
        return "Triton needs a C compiler, and there is no gcc or clang"
    include = sysconfig.get_paths("posix_prefix")["include"]
    if not Path(include, "Python.h").is_file():
        return f"Triton needs the headers of Python, and there is no {include}/Python.h"
    try:
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
            source = Path(folder, "launcher.c")
            source.write_text(PROGRAM)
            command = [compiler, "-shared", "-fPIC", f"-I{include}", str(source), "-o", f"{folder}/launcher.so"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return f"Triton needs a C compiler, and {compiler} could not be tried: {error.strerror}"
    if done.returncode == 0:
        return None
    said = next(filter(None, done.stdout.decode("utf-8", "replace").splitlines()), f"status {done.returncode}")
    return f"Triton needs a C compiler, and {compiler} does not build with Python's headers: {said[:200]}"


def c_compiler(environment: Mapping[str, str]) -> str | None:
    """Return the C compiler that Triton takes, or is to take: the user's, else gcc or clang, else that of ROCm."""
    chosen = environment.get("CC") or shutil.which("gcc") or shutil.which("clang")
    of_rocm = (root / "lib" / "llvm" / "bin" / "clang" for root in rocm_roots())
    return chosen or next((str(path) for path in of_rocm if os.access(str(path), os.X_OK)), None)


def rocm_roots() -> Sequence[Path]:
    """Return the folders that ROCm may be in: its Python package, the usual one, and ROCM_PATH, perhaps the host's."""
    package = importlib.util.find_spec(ROCM_PACKAGE)
    packaged = package.submodule_search_locations if package else None
    roots = [Path(folder) for folder in (*(packaged or ()), "/opt/rocm", os.environ.get("ROCM_PATH") or "/opt/rocm")]
    return [root for root in dict.fromkeys(roots) if root.is_absolute()]
