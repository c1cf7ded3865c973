"""What other users may change is found, from a file up to the root."""

import os
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.core.keys import key_files
from sifmark.core.permissions import changeable_by_others, file_state, require_unshared


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    path = folder / "key.pub"
    path.write_text("a key\n")
    path.chmod(0o644)
    return path


def test_what_is_ours_alone_is_not_shared(file: Path) -> None:
    assert changeable_by_others(file) is None
    require_unshared(file, "a key")
    require_unshared(file.parent / "nothing", "a key")


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_file_that_others_may_write_to_is_shared(file: Path, mode: int) -> None:
    file.chmod(mode)
    with refused(SifmarkError, "path-shared", file):
        require_unshared(file, "a key")


def test_so_is_one_whose_folder_they_may_write_to_unless_it_is_sticky(file: Path) -> None:
    file.parent.chmod(0o777)
    assert changeable_by_others(file) == file.parent
    file.parent.chmod(0o1777)
    assert changeable_by_others(file) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_so_is_one_that_belongs_to_another(file: Path) -> None:
    os.chown(file, 4321, -1)
    assert changeable_by_others(file) == file


def test_a_link_is_judged_by_what_it_leads_to(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    file.parent.chmod(0o777)
    assert changeable_by_others(link) == file.parent


def test_a_file_that_is_replaced_or_written_to_has_another_state(file: Path) -> None:
    before = file_state(file)
    assert file_state(file) == before
    other = file.with_name("other")
    other.write_text("a key\n")
    other.replace(file)
    assert file_state(file) != before
    before = file_state(file)
    file.write_text("another\n")
    assert file_state(file) != before


def test_a_trusted_key_that_others_may_write_to_is_not_used(file: Path) -> None:
    assert key_files([str(file)]) == [file]
    file.chmod(0o666)
    with refused(SifmarkError, "path-shared"):
        key_files([str(file)])
