"""Meters of the vendors' libraries: what they make of answers as these libraries give them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from typing import Any

import nvml_stand_in as nvidia
import pytest
from gcipuinfo_stand_in import Attributes, Inventory
from metered import Clock, Square, sampled, why_no_meter
from program import ROOT

from entrypoints.contract.session import DEVICE_CONDITIONS, DeviceFacts
from entrypoints.metering import kernel_files
from entrypoints.metering.amd import gpus as amd_gpus
from entrypoints.metering.amd import libraries
from entrypoints.metering.amd.conditions import conditions as amd_conditions
from entrypoints.metering.amd.conditions import partition_mode
from entrypoints.metering.energy import window_energy
from entrypoints.metering.meter import Absence, MeterError
from entrypoints.metering.meters import amd, gcipuinfo, intel, nvml
from entrypoints.metering.nvidia.conditions import conditions as nvidia_conditions
from entrypoints.metering.nvidia.conditions import why_no_gpu
from entrypoints.metering.nvidia.gpus import ORDER, VISIBLE
from entrypoints.metering.sampling import Recording
from entrypoints.metering.selection import addresses, each_meter, open_meter
from entrypoints.results.measurement import power_of_devices

A, B = "GPU-aaaa-1", "GPU-bbbb-2"


# The modules that call each library.
NVML = ("meters.nvml", *(f"nvidia.{name}" for name in ("library", "gpus", "bus", "limits", "conditions")))
AMDSMI = ("amd.libraries", "amd.conditions")


@pytest.fixture()
def gpus(monkeypatch):
    """Lets a test lay out the GPUs of a host."""
    assert nvidia.SIMULATED
    for module in NVML:
        monkeypatch.setattr(f"entrypoints.metering.{module}.pynvml", nvidia)
    for name in (VISIBLE, ORDER):
        monkeypatch.delenv(name, raising=False)
    return lambda *devices, **host: monkeypatch.setattr(nvidia, "HOST", nvidia.Host(*devices, **host))


def test_nvml_reads_energy_and_power_in_joules_and_watts(gpus):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    meter = nvml.find(None)
    assert meter.read()[:2] == ([360.0], [5000.0])
    assert (meter.facts.devices, meter.facts.scope, meter.facts.counter_ranges) == ((A,), "package", (None,))
    assert meter.facts.simulated and str(meter.facts.averaging_reason).startswith("an instant value")


def test_nvml_without_counter_or_instant_power_says_so(gpus):
    gpus(nvidia.Gpu(A, energy=None, instant=None))
    meter = nvml.find(None)
    assert meter.read()[:2] == ([350.0], [])
    assert not meter.facts.has_counter and str(meter.facts.averaging_reason).startswith("the library does not say")
    gpus(nvidia.Gpu(A, energy=None, instant=None, power=None))
    with pytest.raises(MeterError, match="reports neither"):
        nvml.find(None)


@pytest.mark.parametrize(
    ("visible", "device"), [(None, A), ("1", B), ("1,0", B), ("GPU-bb", B), (f"{B},{A}", B), ("0", A)]
)
def test_the_gpu_that_computes_is_the_first_that_is_visible(gpus, monkeypatch, visible, device):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    assert nvml.find(None).facts.devices == (device,)
    assert nvml.find(B).facts.devices == (B,)


@pytest.mark.parametrize(("visible", "devices"), [(None, (A, B)), ("1,0", (B, A))])
def test_ranks_are_metered_on_the_gpus_that_they_compute_on(gpus, monkeypatch, visible, devices):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    meter = open_meter("nvml", "cuda", [0, 1])
    assert not isinstance(meter, Absence)
    assert (meter.facts.devices, meter.facts.counter_ranges) == (devices, (None, None))
    assert meter.read()[:2] == ([360.0, 360.0], [5000.0, 5000.0])
    both = power_of_devices(of_two(meter), [computed_by(A), computed_by(B)])
    assert not isinstance(both, Absence)
    lost = power_of_devices(of_two(meter), [computed_by(A), computed_by("GPU-cccc-3")])
    assert isinstance(lost, Absence) and "GPU-cccc-3 computed" in lost.reason


def test_a_rank_that_sees_only_its_gpu_is_metered_on_it(gpus, monkeypatch):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    monkeypatch.setenv(VISIBLE, "1")
    meter = open_meter("nvml", "cuda", [1])
    assert not isinstance(meter, Absence) and meter.facts.devices == (B,)


def test_all_gpus_that_are_visible_are_one_meter(gpus, monkeypatch):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))

    def devices(choice="nvml"):
        meter = dict(each_meter([choice]))[choice]
        return meter.reason if isinstance(meter, Absence) else meter.facts.devices

    assert (devices(), devices("nvml:1")) == ((A, B), (B,))
    monkeypatch.setenv(VISIBLE, "1")
    assert devices() == (B,)
    monkeypatch.setenv(VISIBLE, "")
    assert "leaves no GPU" in devices()


@pytest.mark.parametrize(("visible", "bus"), [("0,1", "01"), ("1", "01"), ("0", "00")])
def test_a_rank_is_near_the_gpu_that_it_sees_also_where_it_sees_no_other(gpus, monkeypatch, visible, bus):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    monkeypatch.setenv(VISIBLE, visible)
    assert list(addresses("cuda", 1)) == [f"0000:{bus}:00.0"]


def of_two(meter):
    return Recording(meter.facts._replace(simulated=False), 0.1, (), (), (), None, 0, None)


def computed_by(identifier):
    return DeviceFacts("cuda", "NVIDIA", "a GPU", 1, "package", 1.0, 1, 1, "eager", False, identifier)


@pytest.mark.parametrize(
    ("visible", "said"), [("", "leaves no GPU"), ("-1", "leaves no GPU"), ("7", "sees 2"), ("GPU-", "2 GPUs have")]
)
def test_a_visible_gpu_that_is_not_there_is_named(gpus, monkeypatch, visible, said):
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    monkeypatch.setenv(VISIBLE, visible)
    with pytest.raises(MeterError, match=said):
        nvml.find(None)


def test_numbers_of_unlike_gpus_are_not_guessed(gpus, monkeypatch):
    gpus(nvidia.Gpu(A, "NVIDIA T4"), nvidia.Gpu(B))
    with pytest.raises(MeterError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        nvml.find(None)
    monkeypatch.setenv(ORDER, "PCI_BUS_ID")
    assert nvml.find(None).facts.devices == (A,)


def test_an_instance_of_mig_is_metered_by_its_whole_gpu(gpus, monkeypatch):
    whole = nvidia.Gpu(A, mig=1)
    gpus(whole, instances=(nvidia.Gpu("MIG-1", parent=whole),))
    monkeypatch.setenv(VISIBLE, "MIG-1")
    assert nvml.find(None).facts.devices == (f"{A} with all its MIG instances",)
    for identifier in (None, "MIG-1", "MIG-of-another-library"):
        assert nvidia_conditions(identifier)["partitioning"] == {"value": "MIG"}


def processes_are_numbered(monkeypatch, folder, by_host):
    """As on the host, or anew by a container."""
    numbers = folder / "pid"
    numbers.symlink_to(kernel_files.HOST_PIDS if by_host else "pid:[4026532198]")
    monkeypatch.setattr(kernel_files, "PIDS", str(numbers))


def test_conditions_have_units_and_reasons(gpus, monkeypatch, tmp_path):
    gpus(nvidia.Gpu(A))
    processes_are_numbered(monkeypatch, tmp_path, by_host=True)
    conditions = nvidia_conditions(A)
    assert conditions["power_cap"] == {"value": 700.0, "unit": "W"}
    assert conditions["throttling"] == {"value": "software power cap, software thermal slowdown"}
    assert (conditions["ecc"]["value"], conditions["performance_state"]["value"]) == ("on", "P0")
    assert (conditions["memory_used"], conditions["other_processes"]["value"]) == ({"value": 3072.0, "unit": "MiB"}, 2)
    assert conditions["persistence"] == {"value": None, "reason": "NVML refuses: this user may not ask the GPU"}


def test_a_process_is_not_taken_for_somebody_else(gpus, monkeypatch, tmp_path):
    gpus(nvidia.Gpu(A))
    monkeypatch.setattr(os, "getpid", lambda: 1)  # the stand-in knows of 1 and 2
    processes_are_numbered(monkeypatch, tmp_path, by_host=True)
    assert nvidia_conditions(A)["other_processes"]["value"] == 1
    (tmp_path / "pid").unlink()
    processes_are_numbered(monkeypatch, tmp_path, by_host=False)
    assert "its processes cannot be found" in nvidia_conditions(A)["other_processes"]["reason"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (nvidia.NVML_ERROR_LIBRARY_NOT_FOUND, "--nv"),
        (nvidia.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (nvidia.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart the host"),
        (nvidia.NVML_ERROR_NO_PERMISSION, "may not ask"),
        (999, "NVML: error 999"),
    ],
)
def test_a_library_that_does_not_start_says_why(gpus, error, said):
    gpus(fails=error)
    assert said in why_no_meter("nvml", "cuda")
    assert said in str(why_no_gpu("12.4"))


def test_a_driver_too_old_is_named_with_both_versions(gpus):
    gpus(nvidia.Gpu(A), driver="535.104", cuda=12020)
    said = str(why_no_gpu("13.0"))
    assert "535.104" in said and "CUDA 12.2" in said and "CUDA 13.0" in said and "cuda12" in said
    assert why_no_gpu("12.8") is None  # minor versions are compatible


class AmdSmi:
    """Answers of amdsmi, by GPU: those of a module with two dies, of which the second tells nothing."""

    SIMULATED = True

    class AmdSmiException(Exception):  # noqa: N818
        pass

    def __init__(self, gpus):
        self.gpus = gpus

    def amdsmi_init(self):
        pass

    def amdsmi_get_processor_handles(self):
        return list(reversed(range(len(self.gpus))))

    def amdsmi_get_gpu_device_bdf(self, handle):
        return f"0000:{handle:02x}:00.0"

    def amdsmi_get_gpu_asic_info(self, handle):
        serial = self.gpus[handle].get("serial", f"0x9F02A1B2C3D4E5{handle:02X}")
        return {"market_name": self.gpus[handle].get("name", "AMD Instinct MI300X"), "asic_serial": serial}

    def amdsmi_get_power_info(self, handle):
        return self.gpus[handle]["power"]

    def amdsmi_get_energy_count(self, handle):
        if self.gpus[handle]["energy"] is None:
            raise self.AmdSmiException
        return self.gpus[handle]["energy"]

    class AmdSmiClkType:
        GFX, MEM = "gfx", "mem"

    def amdsmi_get_clock_info(self, _, kind):
        return {"gfx": {"clk": 900, "max_clk": 2100}, "mem": {"clk": 1300, "max_clk": 1300}}[kind]

    def amdsmi_get_gpu_metrics_info(self, handle):
        return self.gpus[handle]["metrics"]

    def amdsmi_get_violation_status(self, handle):
        if self.gpus[handle]["violations"] is None:
            raise self.AmdSmiException
        return self.gpus[handle]["violations"]

    def amdsmi_get_gpu_driver_info(self, _):
        return {"driver_version": "6.8.5"}

    def amdsmi_get_power_cap_info(self, handle):
        return {"power_cap": self.gpus[handle].get("cap", 750_000_000)}

    def amdsmi_get_gpu_compute_partition(self, _):
        raise self.AmdSmiException

    def amdsmi_get_gpu_process_list(self, _):
        return [{"pid": 1}, {"pid": 2}]


MI300 = {
    "power": {"current_socket_power": 140, "average_socket_power": "N/A", "power_limit": 750},
    "energy": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
}
OLD: dict[str, Any] = {
    "power": {"average_socket_power": 90, "current_socket_power": 0xFFFF},
    "energy": {"power": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
}
MI250 = {**OLD, "name": "AMD Instinct MI250X"}
SECOND_DIE = {**MI250, "power": {"average_socket_power": 0}, "energy": {**OLD["energy"], "power": 0}}


@pytest.fixture()
def amds(monkeypatch):
    for name in amd_gpus.VISIBLE:
        monkeypatch.delenv(name, raising=False)

    def lay_out(*devices):
        library = AmdSmi(devices)
        for module in AMDSMI:
            monkeypatch.setattr(f"entrypoints.metering.{module}.amdsmi", library)
        return library

    return lay_out


@pytest.mark.parametrize(("gpu", "watts", "joules"), [(MI300, 140.0, 15.3), (OLD, 90.0, 30.6)])
def test_amdsmi_of_any_version_gives_watts_and_joules(amds, gpu, watts, joules):
    amds(gpu)
    meter = amd.find(None)
    assert meter.read()[:2] == ([watts], [pytest.approx(joules)])
    assert (meter.facts.source, meter.facts.devices) == ("amdsmi", ("0000:00:00.0",))


@pytest.mark.parametrize("installed", [False, True])
def test_the_module_that_rocm_leaves_uninstalled_is_found_after_one_that_is_installed(tmp_path, installed):
    shipped, site = tmp_path / "share" / "amd_smi", tmp_path / "site"
    for folder in (shipped, site) if installed else (shipped,):
        (folder / "amdsmi").mkdir(parents=True)
        (folder / "amdsmi" / "__init__.py").write_text("")
    code = "from entrypoints.metering.amd import libraries; print(libraries.amdsmi.__file__)"
    environment = {**os.environ, "ROCM_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment).decode()
    assert output.startswith(str(site if installed else shipped))


def test_a_module_that_prints_and_does_not_fit_its_library_leaves_the_result_alone(tmp_path):
    (tmp_path / "amdsmi.py").write_text("print('no such library'); None.amdsmi_get_new_things\n")
    code = "from entrypoints.metering import selection; print(selection.open_meter('auto', 'abacus').reason)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert output.decode().strip() == "no meter measures abacus"


def test_a_gpu_without_a_counter_tells_its_power(amds):
    amds({**MI300, "energy": None})
    meter = amd.find(None)
    assert meter.read()[:2] == ([140.0], []) and not meter.facts.has_counter


@pytest.mark.parametrize("name", ["AMD Instinct MI250X", "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"])
def test_the_second_die_of_a_module_is_metered_by_the_first(amds, monkeypatch, tmp_path, name):
    amds(*({**die, "name": name} for die in (MI250, SECOND_DIE, MI250, SECOND_DIE)))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(amd_gpus, "PCI", tmp_path)
    for number in range(4):
        (tmp_path / f"0000:{number:02x}:00.0").touch()
    meter = amd.find(None)
    assert meter.facts.devices == ("0000:02:00.0 and 0000:03:00.0, the dies of a module",)
    assert meter.read().watts == [90.0]


@pytest.mark.parametrize(
    ("here", "host", "visible", "device"),
    [
        ((MI250, SECOND_DIE), 4, "1", None),  # of two modules one die each: nobody can tell
        ((SECOND_DIE, MI250), 4, "0", None),
        (
            (SECOND_DIE, MI250),
            4,
            "1",
            "0000:01:00.0 with the other die of its module",
        ),  # the first die of its module, wherever it stands
        ((MI250, SECOND_DIE), 2, "1", "0000:00:00.0 and 0000:01:00.0, the dies of a module"),
        ((SECOND_DIE, MI250), 2, "0", "0000:01:00.0 and 0000:00:00.0, the dies of a module"),
    ],
)
def test_a_die_that_is_hidden_from_a_job_is_not_guessed(amds, monkeypatch, tmp_path, here, host, visible, device):
    amds(*here)
    monkeypatch.setattr(amd_gpus, "PCI", tmp_path)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", visible)
    for number in range(host):
        (tmp_path / f"0000:{number:02x}:00.0").touch()
    (tmp_path / "bind").touch()
    if device is None:
        with pytest.raises(MeterError, match="second die of a module, whose first one is hidden"):
            amd.find(None)
    else:
        assert amd.find(None).facts.devices == (device,)


@pytest.mark.parametrize(("mode", "said"), [("CPX", " with all its partitions"), ("SPX", ""), ("N/A", "")])
def test_a_partition_is_metered_by_its_whole_gpu(amds, monkeypatch, mode, said):
    amds(MI300)
    monkeypatch.setattr(AmdSmi, "amdsmi_get_gpu_compute_partition", lambda *_: mode)
    assert amd.find(None).facts.devices == (f"0000:00:00.0{said}",)
    assert partition_mode() == ("CPX" if said else None)


def test_visible_devices_of_rocm_count_one_after_the_other(amds, monkeypatch):
    amds(MI300, MI300, MI300)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert amd.find(None).facts.devices == ("0000:01:00.0",)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "GPU-9f02a1b2c3d4e502")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES")
    assert amd.find(None).facts.devices == ("0000:02:00.0",)
    amds({**MI300, "serial": "N/A"}, MI300)
    for word in ("GPU-9f02a1b2c3d4e500", "GPU-N/A"):
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", word)
        with pytest.raises(MeterError, match="0 GPUs have the UUID"):
            amd.find(None)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "9")
    with pytest.raises(MeterError, match="there is no GPU 9"):
        amd.find(None)


@pytest.mark.parametrize(
    ("status", "violations", "throttling"),
    [
        (1 << 1 | 1 << 36, None, "PPT1, TEMP_HOTSPOT"),  # MI200, ROCm 6
        (0, None, "none"),
        (True, None, "throttled"),  # ROCm 7
        (False, None, "none"),
        ("N/A", {"active_ppt_pwr": True, "active_hbm_thrm": False}, "ppt_pwr"),  # MI300
        (2**64 - 1, {"active_ppt_pwr": 0, "active_socket_thrm": "N/A"}, "none"),
        ("N/A", {"active_ppt_pwr": "N/A"}, None),
        ("N/A", None, None),
    ],
)
def test_conditions_of_an_amd_gpu(amds, monkeypatch, tmp_path, status, violations, throttling):
    amds({**MI300, "metrics": {"temperature_hotspot": 61, "indep_throttle_status": status}, "violations": violations})
    processes_are_numbered(monkeypatch, tmp_path, by_host=True)
    conditions = amd_conditions(None)
    assert set(conditions) < set(DEVICE_CONDITIONS)
    assert conditions["driver"] == {"value": "6.8.5"}
    assert conditions["power_cap"] == {"value": 750.0, "unit": "W"}
    assert conditions["temperature"] == {"value": 61, "unit": "°C"}
    clocks = tuple(conditions[name]["value"] for name in ("clock", "clock_max", "memory_clock"))
    assert clocks == (900, 2100, 1300)
    assert conditions["throttling"]["value"] == throttling
    # An error of the library's.
    assert conditions["partitioning"] == {"value": None, "reason": "the system does not say"}
    assert conditions["memory_used"]["value"] is None  # a call that this version has not
    assert conditions["other_processes"]["value"] == 2


def test_a_number_that_is_none_is_no_temperature(amds):
    amds({**MI300, "metrics": {"temperature_hotspot": 0xFFFF}, "cap": "N/A"})
    conditions = amd_conditions(None)
    assert conditions["temperature"]["value"] is None and conditions["power_cap"]["value"] is None


def test_without_amdsmi_and_its_forerunner_both_reasons_are_told(monkeypatch):
    monkeypatch.setattr(libraries, "amdsmi", None)
    with pytest.raises(MeterError, match="amdsmi is not here.*rocm_smi: librocm_smi64.so"):
        amd.find(None)


def test_ipus_are_read_anew_each_time(monkeypatch):
    readings = [[{"id": "0", "ipu power": power}] for power in ("92.1 W", "118.4W")]
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([*readings[:1], *readings]))
    meter = gcipuinfo.find(None)
    assert meter.facts.devices == ("IPU 0",) and meter.facts.scope == "die"
    assert [meter.read().watts for _ in range(2)] == [[92.1], [118.4]]


def test_an_ipu_without_power_is_a_reading_that_failed(monkeypatch):
    monkeypatch.setattr(
        gcipuinfo, "gcipuinfo", Inventory([[{"id": "0", "ipu power": "N/A", "total board power": "N/A"}]])
    )
    assert "'N/A'" in why_no_meter("gcipuinfo", "ipu")


def test_ipus_that_tell_no_power_are_metered_by_their_boards(monkeypatch):
    """As on PCIe cards: a board is counted once, however many IPUs it has."""
    boards = [("a", "120 W"), ("a", "120 W"), ("b", "95 W")]
    devices = [
        {"id": str(place), "ipu power": "N/A", "board serial number": serial, "total board power": power}
        for place, (serial, power) in enumerate(boards)
    ]
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([devices]))
    meter = gcipuinfo.find(None)
    assert (meter.facts.scope, meter.facts.devices) == ("board", ("board a", "board b"))
    assert meter.read().watts == [120.0, 95.0]


class Drawing:
    """gcipuinfo over IPUs that draw power by the clock; `of_boards`: two share a board, which alone tells its power."""

    def __init__(self, clock, count, of_boards, users=()):
        self.clock, self.of_boards = clock, of_boards
        self.users = users or ["N/A"] * count
        self.waves = [Square(20.0 + place, 60.0 + place, 150.0, phase=place) for place in range(count)]

    def gcipuinfo(self):
        return self

    def setUpdateMode(self, mode):  # noqa: N802
        assert mode

    def getDevices(self):  # noqa: N802
        watts = [wave.watts(self.clock()) for wave in self.waves]
        boards = [sum(watts[place : place + 2]) for place in range(0, len(watts), 2)]
        devices = [
            {
                "id": str(place),
                "user process id": self.users[place] if 20 < self.clock() < 90 else "N/A",
                "ipu power": "N/A" if self.of_boards else f"{watts[place]:.1f} W",
                "board serial number": f"serial {place // 2}",
                "total board power": f"{boards[place // 2]:.1f} W",
            }
            for place in range(len(watts))
        ]
        return list(map(Attributes, devices))


@pytest.mark.parametrize("of_boards", [False, True])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_ipus_use_together_what_the_exact_integrals_are(monkeypatch, count, of_boards):
    clock, window = Clock(), (4.03, 103.97)
    drawing = Drawing(clock, count, of_boards)
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", drawing)
    meter = gcipuinfo.find(None)
    used = window_energy(sampled(meter, clock, 110.0), window)
    assert len(used.joules) == (-(-count // 2) if of_boards else count)
    assert sum(used.joules) == pytest.approx(sum(wave.between(window) for wave in drawing.waves), rel=0.005)


def computed_on(count):
    return DeviceFacts("ipu", "Graphcore", "Bow", count, "die", None, 1, count, "", False)


@pytest.mark.parametrize(
    ("users", "count", "of_boards", "metered"),
    [
        (["N/A", "812", "0", ""], 1, False, [1]),
        (["N/A", "812", "812", "N/A"], 2, False, [1, 2]),
        (["N/A", "N/A", "812", "812"], 2, True, [2, 3]),
        (["N/A", "812", "N/A", "N/A"], 1, True, [0, 1]),  # its board has another
        (["812"] * 4, 4, False, [0, 1, 2, 3]),
        (["N/A"] * 4, 4, False, [0, 1, 2, 3]),
        (["812", "77", "N/A", "N/A"], 1, False, "shows 4 accelerators, 1 computed, and processes had 2"),
        (["N/A"] * 4, 1, True, "it does not report which ones processes used: use a partition of 1"),
    ],
)
def test_energy_is_of_the_ipus_that_computed(monkeypatch, users, count, of_boards, metered):
    clock, window = Clock(), (24.03, 83.97)
    drawing = Drawing(clock, 4, of_boards, users)
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", drawing)
    recording = power_of_devices(sampled(gcipuinfo.find(None), clock, 110.0), [computed_on(count)])
    if isinstance(metered, str):
        assert isinstance(recording, Absence) and metered in recording.reason
        return
    assert isinstance(recording, Recording)
    exact = sum(drawing.waves[place].between(window) for place in metered)
    used = window_energy(recording, window)
    assert sum(used.joules) == pytest.approx(exact, rel=0.01)
    assert len(used.joules) == len(recording.facts.devices) == (len(metered) // 2 if of_boards else len(metered))


def test_a_model_of_an_ipu_has_no_energy(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Drawing(clock, 1, False))
    recording = sampled(gcipuinfo.find(None), clock, 110.0)
    power = power_of_devices(recording, [computed_on(1)._replace(simulated=True)])
    assert isinstance(power, Absence)
    assert power.reason == "what computed is a model of a device, and gcipuinfo reads real ones"


@pytest.mark.parametrize(
    ("clocks", "chip"),
    [(["1330MHz"] * 4, "GC200"), (["1850MHz"], "Bow"), (["1330MHz", "1850MHz"], None), (["N/A"], None)],
)
def test_the_clock_tells_which_ipu_it_is(monkeypatch, clocks, chip):
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([[{"clock": clock} for clock in clocks]]))
    assert gcipuinfo.chip() == chip


def test_without_the_library_nobody_can_tell_which_ipu_it_is():
    assert gcipuinfo.gcipuinfo is None and gcipuinfo.chip() is None


def test_conditions_of_ipus(monkeypatch, tmp_path):
    processes_are_numbered(monkeypatch, tmp_path, by_host=True)
    monkeypatch.setattr(os, "getpid", lambda: 7)
    devices = [
        {"driver version": "1.0.55", "clock": "1330MHz", "average die temp": "30.1 C", "user process id": pid}
        for pid in ("7", "12", "12", "N/A", "0", "")
    ]
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([devices]))
    conditions = gcipuinfo.conditions()
    assert set(conditions) < set(DEVICE_CONDITIONS)
    assert {name: fact["value"] for name, fact in conditions.items()} == {
        "driver": "1.0.55",
        "clock": "1330MHz",
        "temperature": "30.1 C",
        "other_processes": 1,
    }
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([[{"clock": "1330MHz"}]]))
    assert gcipuinfo.conditions()["other_processes"]["value"] is None


def test_no_ipu_is_told(monkeypatch):
    monkeypatch.setattr(gcipuinfo, "gcipuinfo", Inventory([[]]))
    with pytest.raises(MeterError, match="IPUOF_VIPU_API_PARTITION_ID"):
        gcipuinfo.find(None)


def card(root, number, driver, address, **counters):
    folder = root / f"hwmon{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{driver}\n")
    (root / address).mkdir(exist_ok=True)
    (folder / "device").symlink_to(root / address)
    for name, value in counters.items():
        (folder / name).write_text(f"{value}\n")
    return folder


@pytest.fixture()
def cards(tmp_path, monkeypatch):
    monkeypatch.setattr(intel, "LOADER", "no_such_library.so")
    monkeypatch.setattr(intel, "HWMON", tmp_path)
    for name in (intel.MASK, intel.HIERARCHY, intel.SELECTOR):
        monkeypatch.delenv(name, raising=False)
    card(tmp_path, 3, "i915", "0000:29:00.0", energy1_input=2_000_000)
    card(tmp_path, 1, "i915_gt0", "0000:29:00.0", energy1_input=1_000_000)  # a tile
    card(tmp_path, 2, "xe", "0000:9a:00.0", energy2_input=7_000_000)
    card(tmp_path, 4, "nvme", "0000:01:00.0")
    return tmp_path


def test_a_card_of_intel_s_by_the_kernel(cards, monkeypatch):
    meter = intel.find(None)
    assert meter.read()[:2] == ((), [2.0])
    assert (meter.facts.source, meter.facts.devices) == ("drm_hwmon", ("0000:29:00.0",))
    assert meter.facts.scope == "board"
    monkeypatch.setenv(intel.MASK, "1.0,1.1")  # tiles of the second
    meter = intel.find(None)
    assert (meter.read().joules, meter.facts.scope) == ([7.0], "package")
    (cards / "hwmon2" / "energy1_input").write_text("8000000\n")
    meter = intel.find(None)
    assert (meter.read().joules, meter.facts.scope) == ([8.0], "board")
    shutil.rmtree(cards / "hwmon1")
    assert intel.find("0").facts.scope == "package"


def test_the_address_of_a_rank_s_card_of_intel_s(cards, monkeypatch):
    assert list(addresses("xpu", 0)) == ["0000:29:00.0"]
    monkeypatch.setenv(intel.MASK, "0.0,0.1,1.0,1.1")
    assert list(addresses("xpu", 2)) == ["0000:9a:00.0"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({intel.MASK: "1", intel.HIERARCHY: "COMPOSITE"}, [7.0]),
        ({intel.MASK: "0,1"}, [2.0]),
        ({intel.MASK: "1"}, "numbers tiles unless ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.*--meter intel:NUMBER"),
        ({intel.MASK: "1", intel.HIERARCHY: "combined"}, "numbers tiles"),
        ({intel.MASK: "x"}, "names no card"),
        ({intel.SELECTOR: "level_zero:gpu"}, [2.0]),
        ({intel.SELECTOR: "level_zero:1"}, "ONEAPI_DEVICE_SELECTOR=level_zero:1 chooses among devices"),
        ({intel.SELECTOR: "opencl:0"}, "chooses among devices"),
    ],
)
def test_the_card_that_computes_is_told_or_nothing_is_metered(cards, monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, str):
        with pytest.raises(MeterError, match=expected):
            intel.find(None)
        assert intel.find("1").read().joules == [7.0]
    else:
        assert intel.find(None).read().joules == expected


def tile(cards, address, folder, **files):
    place = cards / address / folder
    place.mkdir(parents=True)
    for name, value in files.items():
        (place / name).write_text(f"{value}\n")


def test_conditions_of_a_card_by_the_kernel(cards, monkeypatch):
    assert intel.conditions(None)["driver"]["value"] is None
    conditions = intel.conditions("1.3.30049")
    assert set(conditions) < set(DEVICE_CONDITIONS)
    assert conditions["driver"] == {"value": "1.3.30049"}
    assert conditions["clock"] == {"value": None, "unit": "MHz", "reason": "the system does not say"}
    assert (
        conditions["power_cap"]["value"]
        is conditions["throttling"]["value"]
        is conditions["temperature"]["value"]
        is None
    )

    reasons = {"throttle_reason_status": 1, "throttle_reason_pl1": 1, "throttle_reason_thermal": 0}
    tile(cards, "0000:29:00.0", "drm/card1/gt/gt0", rps_act_freq_mhz=1600, rps_RP0_freq_mhz=1700, **reasons)
    tile(cards, "0000:29:00.0", "drm/card1/gt/gt1", rps_act_freq_mhz=900, throttle_reason_status=0)
    (cards / "hwmon3" / "power1_max").write_text("600000000\n")
    (cards / "hwmon3" / "temp1_input").write_text("51500\n")
    conditions = intel.conditions(None)
    assert (conditions["clock"], conditions["clock_max"]["value"]) == ({"value": 1600, "unit": "MHz"}, 1700)
    assert conditions["throttling"] == {"value": "pl1"}
    assert conditions["power_cap"] == {"value": 600.0, "unit": "W"}
    assert conditions["temperature"] == {"value": 51.5, "unit": "°C"}
    monkeypatch.setenv(intel.MASK, "0.1")
    conditions = intel.conditions(None)
    values = tuple(conditions[name]["value"] for name in ("clock", "clock_max", "throttling"))
    assert values == (900, None, "none")
    (cards / "hwmon3" / "power1_max").write_text("0\n")
    assert intel.conditions(None)["power_cap"]["value"] is None  # no limit

    tile(cards, "0000:9a:00.0", "tile0/gt0/freq0/throttle", status=1, reason_thermal=1, reason_pl2=1)
    (cards / "0000:9a:00.0/tile0/gt0/freq0/act_freq").write_text("2400\n")
    (cards / "hwmon2" / "power2_max").write_text("120000000\n")
    monkeypatch.setenv(intel.MASK, "1.0")
    conditions = intel.conditions(None)
    assert (conditions["clock"]["value"], conditions["throttling"]["value"]) == (2400, "pl2, thermal")
    assert conditions["power_cap"]["value"] == 120.0
    monkeypatch.setenv(intel.MASK, "7.0")
    assert "there is no card 7" in intel.conditions(None)["clock"]["reason"]


def test_a_card_is_named_by_its_number(cards):
    assert "'/sys/class/drm/card0' is no number of a card" in why_no_meter("intel:/sys/class/drm/card0", "xpu")


def test_a_card_that_is_not_there(cards):
    with pytest.raises(MeterError, match="level_zero: no_such_library.so.*there is no card 5"):
        intel.find("5")


class Sysman:
    """Level Zero's functions, called as a C library's are."""

    def __init__(self, energy, cards=2, failing=None):
        self.energy, self.cards, self.failing = energy, cards, failing

    def __getattr__(self, name):
        def call(*arguments):
            if name == self.failing:
                return 0x78000003
            if name in ("zesDriverGet", "zesDeviceGet"):
                count, handles = arguments[-2:]
                count = count._obj
                count.value = 1 if name == "zesDriverGet" else self.cards
                for index in range(count.value if handles is not None else 0):
                    handles[index] = index + 1
            if name == "zesPowerGetEnergyCounter":
                arguments[1]._obj.energy = self.energy
            return 0

        call.__name__ = name
        return call


def test_a_card_of_intel_s_by_sysman(cards, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Sysman(3_500_000))
    meter = intel.find("1")
    assert meter.read()[:2] == ((), [3.5])
    assert (meter.facts.source, meter.facts.devices) == ("level_zero", ("card 1",))
    assert (intel.find("0").facts.scope, meter.facts.scope) == ("board", "package")
    shutil.rmtree(cards / "hwmon3")
    shutil.rmtree(cards / "hwmon2")
    assert intel.find("0").facts.scope == "package", "nobody says"


@pytest.mark.parametrize("failing", ["zesDeviceGetCardPowerDomain", "zesPowerGetEnergyCounter"])
def test_where_sysman_fails_the_kernel_is_asked(cards, monkeypatch, failing):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Sysman(0, failing=failing))
    assert intel.find(None).facts.source == "drm_hwmon"
