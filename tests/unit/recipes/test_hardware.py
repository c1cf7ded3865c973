"""Hardware: what its files say, and which of it is behind device files."""

import json
from pathlib import Path

import pytest

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.recipes.hardware import Access, all_hardware, assumed_flops, hardware_of, load_hardware


def test_every_hardware_has_a_device_in_images_and_no_two_the_same_cards() -> None:
    assert all(list(paths.ENTRYPOINTS.glob(f"devices/*/{each.device}.py")) for each in all_hardware())
    vendors = [each.pci_vendor for each in all_hardware() if each.pci_vendor]
    assert len(vendors) == len(set(vendors))
    assert all(set(each.selection_paths) | {each.share} <= {*each.selection, ""} for each in all_hardware())


def test_recipes_and_hardware_describe_access_alike() -> None:
    recipe, hardware = (json.loads((paths.SCHEMAS / f"{name}-1.0.json").read_text()) for name in ("recipe", "hardware"))
    for name in ("apptainer", "docker"):
        table = recipe["$defs"]["run"]["properties"][name]
        assert table == hardware["properties"]["run"]["properties"][name]


@pytest.mark.parametrize("name", [each.name for each in all_hardware() if each.access])
def test_device_files_tell_the_hardware(name: str) -> None:
    access = load_hardware(name).access
    assert access and access.is_allowed()
    hardware = hardware_of(access)
    assert hardware and hardware.name == name
    assert hardware_of(Access(("/dev/unheard_of",))) is None


def test_what_is_assumed_of_unknown_devices_and_precisions() -> None:
    assert assumed_flops("cpu", "fp32") == assumed_flops("cpu", "fp16") == 5e10
    assert assumed_flops("cuda", "tf32") == 4e13
    assert assumed_flops("npu", "fp32") > 0


@pytest.mark.parametrize(
    "text",
    ["", 'device = "Cuda"', 'device = "cuda"\ncolour = "blue"', 'device = "cuda"\n[run]\ndevices = ["/dev/*"]'],
)
def test_a_wrong_file_is_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "HARDWARE", tmp_path)
    (tmp_path / "loom.toml").write_text(f'schema_version = "1.0"\n{text}')
    with pytest.raises(UsageError) as caught:
        load_hardware("loom")
    assert str(tmp_path / "loom.toml") in caught.value.cause and caught.value.code == "document-invalid"
