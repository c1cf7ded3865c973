"""What others use of a host before a run, as the kernel and vendors' programs tell it."""

import os
import sys
import time
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core.checks import Status
from sifmark.core.errors import BusyError, UsageError
from sifmark.core.paths import import_shared
from sifmark.core.settings import Settings
from sifmark.doctor import load
from sifmark.recipes.hardware import Hardware, load_hardware

PROCESSORS = {0, 1}
OWN, CHILD, OTHER, ELSEWHERE, GONE = os.getpid(), 900_001, 900_002, 900_003, 900_004


class Kernel:
    """A folder like /proc. Times are in ticks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[int, tuple[str, int, int, int]] = {}  # name, parent, ticks, processor
        self.busy = dict.fromkeys((0, 1, 2), 1000)

    def write(self) -> None:
        lines = ["cpu 0 0 0 0 0 0 0 0 0 0"]
        lines += [f"cpu{number} {busy} 0 0 77777 88 0 0 99999 5 0" for number, busy in self.busy.items()]
        (self.folder / "stat").write_text("\n".join([*lines, "intr 1 2", "ctxt 3", ""]))
        for number, (name, parent, ticks, processor) in self.processes.items():
            (self.folder / str(number)).mkdir(exist_ok=True)
            before = " ".join(["S", str(parent), *["0"] * 9, str(ticks - 1), "1", "0", "0"])
            after = " ".join(["0"] * 21)
            (self.folder / str(number) / "stat").write_text(f"{number} ({name}) {before} {after} {processor} 0 0\n")
        for path in self.folder.glob("9*"):
            if int(path.name) not in self.processes:
                (path / "stat").unlink()
                path.rmdir()

    def later(self, ticks: dict[int, int], busy: int) -> None:
        """Let processes use this many ticks, and the first processor be busy for as many as `busy`."""
        for number, gained in ticks.items():
            name, parent, used, processor = self.processes[number]
            self.processes[number] = (name, parent, used + gained, processor)
        self.busy[0] += busy
        self.write()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    (tmp_path / "proc").mkdir()
    kernel = Kernel(tmp_path / "proc")
    kernel.processes = {
        OWN: ("pytest", 1, 500, 0),
        CHILD: ("python", OWN, 50, 1),
        OTHER: ("a (b) c", 1, 5000, 0),
        ELSEWHERE: ("far", 1, 10, 2),
    }
    kernel.write()
    monkeypatch.setattr(load, "PROC", kernel.folder)
    monkeypatch.setattr(load, "SAMPLE", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: PROCESSORS)
    monkeypatch.setattr(time, "monotonic", iter(range(1000)).__next__)  # each look is a second after the last
    return kernel


def looked(kernel: Kernel, ticks: dict[int, int], busy: int) -> load.HostLoad:
    sample = load.LoadSample()  # at 0 s; its end asks for the time twice more
    kernel.later(ticks, busy)
    return sample.end()


def test_only_others_on_processors_of_ours_count(kernel: Kernel) -> None:
    found = looked(kernel, {OWN: 20, CHILD: 30, OTHER: 80, ELSEWHERE: 100}, busy=20 + 30 + 80)
    assert (found.processors, found.used, found.processes) == (2, 0.4, (("a (b) c", OTHER),))
    assert found.is_busy and f"a (b) c (PID {OTHER})" in str(found) and "0.4 of 2" in str(found)


def test_those_that_this_user_cannot_see_count_too(kernel: Kernel) -> None:
    del kernel.processes[OTHER]
    found = looked(kernel, {}, busy=150)
    assert found.is_busy and found.used == 0.75 and found.processes == ()


@pytest.mark.parametrize(("busy", "is_busy"), [(0, False), (20, False), (21, True)])
def test_little_is_no_load(kernel: Kernel, busy: int, is_busy: bool) -> None:
    assert looked(kernel, {}, busy).is_busy is is_busy


@pytest.mark.parametrize(("processors", "used", "is_busy"), [(1, 0.06, True), (128, 0.25, False), (128, 0.9, True)])
def test_a_core_of_many_is_a_load(processors: int, used: float, is_busy: bool) -> None:
    assert load.HostLoad(processors, used).is_busy is is_busy


def test_a_kernel_without_times_of_processors_has_those_of_processes(kernel: Kernel) -> None:
    sample = load.LoadSample()
    kernel.later({OTHER: 100, ELSEWHERE: 0}, busy=0)
    (kernel.folder / "stat").write_text("nothing\n")
    assert sample.end().used == 0.5


def test_a_process_that_comes_or_goes_meanwhile_does_no_harm(kernel: Kernel) -> None:
    sample = load.LoadSample()
    del kernel.processes[OTHER]
    kernel.processes[GONE] = ("new", 1, 40, 1)
    kernel.later({}, busy=40)
    assert sample.end().processes == (("new", GONE),)


def test_this_kernel_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "SAMPLE", 0.05)
    found = load.LoadSample().end()
    assert found.processors == len(os.sched_getaffinity(0)) and found.used >= 0
    assert os.getpid() not in [number for _, number in found.processes]


def test_governor_and_boost_are_told(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = import_shared("system.host")
    monkeypatch.setattr(host, "SYS_CPU", tmp_path)
    assert load.processor_clocks() == ""
    for number in PROCESSORS:
        (tmp_path / f"cpu{number}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "cpufreq" / "scaling_governor").write_text("powersave\n")
    (tmp_path / "intel_pstate").mkdir()
    (tmp_path / "intel_pstate" / "no_turbo").write_text("0\n")
    found = looked(kernel, {}, busy=0)
    assert not found.is_busy and "CPU governor powersave, boost on" in str(found)


# A vendor's program that says what is in a file of its name, and writes its arguments to another.
VENDOR = """#!{python} -S
import pathlib, sys
here = pathlib.Path(sys.argv[0])
said = here.with_suffix(".said").read_text().split("---\\n")
asked = here.with_suffix(".asked")
words = asked.read_text().splitlines() if asked.exists() else []
asked.write_text("\\n".join([*words, " ".join(sys.argv[1:])]))
query = "processes" if {processes!r} in " ".join(sys.argv) else "clocks"
print(said[min(len(words) // 2, len(said) - 2)] if query == "processes" else said[-1], end="")
"""


def vendor(folder: Path, name: str, processes: str, *said: str) -> Path:
    """Install a vendor's program; `said` are its answers about processes in turn, and then that about clocks."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(VENDOR.format(python=sys.executable, processes=processes))
    path.chmod(0o755)
    path.with_suffix(".said").write_text("---\n".join(said))
    return path


CLOCKS = "345\n1980\n"
ROCM = """
============================ ROCm System Management Interface ============================
GPU[0]\t\t: sclk clock level: 1: (132Mhz)
GPU[0]\t\t: mclk clock level: 3: (1300Mhz)
GPU[1]\t\t: sclk clock level: 1: (2100Mhz)
"""
ROCM_PIDS = """
====================================== KFD Processes ======================================
KFD process information:
PID    \tPROCESS NAME\tGPU(s)\tVRAM USED \tSDMA USED\tCU OCCUPANCY\t
4711   \tpython3.11  \t1     \t5498626048\t0        \t0           \t
4712   \ta name      \tUNKNOWN\t0\t0        \tUNKNOWN     \t
"""


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return load_hardware("nvidia")


@pytest.mark.parametrize("visible", ["", "2,3"])
def test_processes_on_gpus_are_a_load(
    kernel: Kernel, nvidia: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    program = vendor(tmp_path, "nvidia-smi", "compute-apps", "4711, /opt/x/bin/python\n4712, [Not Found]\n", CLOCKS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = load.LoadSample().end([nvidia])
    assert found.is_busy and found.on_devices == (("python", 4711), ("[Not Found]", 4712))
    assert found.clocks == "device clocks 345 MHz, 1980 MHz" and found.clocks in str(found)
    assert [line.endswith(f" --id={visible}") for line in program.with_suffix(".asked").read_text().splitlines()] == [
        bool(visible)
    ] * 2


def test_gpus_of_amd_are_asked_too(
    kernel: Kernel, nvidia: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor(tmp_path, "rocm-smi", "showpids", ROCM_PIDS, ROCM)
    found = load.LoadSample().end([load_hardware("amd")])
    assert found.on_devices == (("python3.11", 4711), ("a name", 4712))
    assert found.clocks == "device clocks 132 MHz, 2100 MHz"


def test_a_program_that_is_not_there_or_fails_says_nothing(kernel: Kernel, nvidia: Hardware, tmp_path: Path) -> None:
    assert not load.LoadSample().end([nvidia]).is_busy
    vendor(tmp_path, "nvidia-smi", "compute-apps")  # without an answer it fails
    assert not load.LoadSample().end([nvidia]).is_busy


def test_others_are_waited_for(
    kernel: Kernel, nvidia: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They pause once: that is not the end."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    users = "4711, python\n"
    program = vendor(tmp_path, "nvidia-smi", "compute-apps", users, users, "", users, "", CLOCKS)
    load.report_load(load.LoadSample(), [nvidia], wait_idle=1000.0)
    assert len(program.with_suffix(".asked").read_text().splitlines()) == 2 * 6


def test_waiting_ends(kernel: Kernel, nvidia: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    vendor(tmp_path, "nvidia-smi", "compute-apps", "4711, python\n", CLOCKS)
    with refused(BusyError, "host-busy", "python (PID 4711)") as error:
        load.report_load(load.LoadSample(), [nvidia], wait_idle=20.0)
    assert error.value.exit_code == 75


@pytest.mark.parametrize(("text", "seconds"), [("", 0), ("90", 90), ("90s", 90), ("10m", 600), ("00:30:00", 1800)])
def test_times_to_wait(text: str, seconds: float) -> None:
    assert load.wait_seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "0", "-5", "10x"])
def test_what_is_no_time(text: str) -> None:
    with refused(UsageError, "invalid-option"):
        load.wait_seconds(text)


@pytest.mark.parametrize(("busy", "status"), [(0, Status.PASSED), (100, Status.WARNING)])
def test_the_doctor_has_a_row(
    kernel: Kernel, site: Settings, monkeypatch: pytest.MonkeyPatch, busy: int, status: Status
) -> None:
    def hardware_here() -> list[Hardware]:
        kernel.later({}, busy)
        return []

    monkeypatch.setattr(load, "hardware_here", hardware_here)
    (check,) = load.check_load(site)
    assert check.status is status and bool(check.remedy) is bool(busy)
