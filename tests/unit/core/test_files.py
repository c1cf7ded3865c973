"""Whole or absent."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.core.files import (
    atomic_path,
    normalise_tree,
    read_bounded,
    remove_stale_drafts,
    sha256_json,
    write_json,
)


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"old": True})
    before = target.read_bytes()
    with pytest.raises(RuntimeError), atomic_path(target) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_signal_while_a_draft_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Path.mkdir

    def interrupted(folder: Path, *arguments: Any, **options: Any) -> None:
        make(folder, *arguments, **options)
        if ".partial-" in folder.name:
            raise SystemExit

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(SystemExit), atomic_path(tmp_path / "a.json"):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from sifmark.core.files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as draft:\n"
        "    draft.write_text('half'); os.kill(os.getpid(), 9)"
    )
    killed, living = tmp_path / "killed.sif", tmp_path / "living.sif"
    subprocess.run([sys.executable, "-c", code, str(killed)], check=False)
    assert list(tmp_path.iterdir()), "the killed writer leaves its draft"
    with atomic_path(living) as draft:
        draft.write_text("whole")
        remove_stale_drafts(tmp_path)
        assert [path.name.split(".")[1] for path in tmp_path.iterdir()] == ["living"]
    assert living.read_text() == "whole"
    assert not killed.exists()


@pytest.mark.parametrize(("content_addressed", "theirs"), [(True, "theirs"), (False, "ours")])
def test_a_folder_that_another_process_finished_first_is_kept(
    tmp_path: Path, content_addressed: bool, theirs: str
) -> None:
    target = tmp_path / "key"
    with atomic_path(target, content_addressed=content_addressed) as draft:
        draft.mkdir()
        (draft / "a").write_text("ours")
        target.mkdir()
        (target / "a").write_text(theirs)
    assert (target / "a").read_text() == theirs
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_with_other_files_is_not_silently_kept(tmp_path: Path) -> None:
    target = tmp_path / "name"
    target.mkdir()
    (target / "a").write_text("theirs")
    with refused(UsageError, "folder-not-empty"), atomic_path(target) as draft:
        draft.mkdir()
        (draft / "a").write_text("ours")
    assert (target / "a").read_text() == "theirs"


def test_what_has_its_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: the files, the name, the folder with the name."""
    done = list[str]()
    synchronise, rename = os.fsync, Path.replace

    def noted_fsync(number: int) -> None:
        done.append(Path(f"/proc/self/fd/{number}").readlink().name)
        synchronise(number)

    def noted_replace(draft: Path, target: Path) -> Path:
        done.append("name")
        return rename(draft, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with atomic_path(tmp_path / "folder") as draft:
        draft.mkdir()
        (draft / "file").write_text("content")
    assert done == ["folder", "file", "name", tmp_path.name]


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_canonical_hash_ignores_order() -> None:
    assert sha256_json({"a": 1, "b": [2]}) == sha256_json({"b": [2], "a": 1})
    assert sha256_json({"a": 1}) != sha256_json({"a": 2})


def test_trees_become_readable_for_everyone(tmp_path: Path) -> None:
    script, secret = tmp_path / "t" / "run", tmp_path / "t" / "d" / "x"
    secret.parent.mkdir(parents=True)
    for path, mode in ((script, 0o700), (secret, 0o600)):
        path.write_text("")
        path.chmod(mode)
    secret.parent.chmod(0o700)
    normalise_tree(tmp_path / "t")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "t").rglob("*")}
    assert modes == {"run": 0o755, "d": 0o755, "x": 0o644}


def test_a_bounded_read_waits_for_nobody_and_ends(tmp_path: Path) -> None:
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    path.write_bytes(b"12345")
    os.mkfifo(pipe)
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_bounded(path, 4)
    for other in (pipe, Path("/dev/zero"), tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError):
            read_bounded(other, 5)


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    link.symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    for target in (pipe, link):
        with refused(UsageError, "invalid-option"), atomic_path(target) as draft:
            draft.write_text("x")
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
    assert sorted(tmp_path.iterdir()) == [pipe, link]


def test_errors_name_the_target_and_no_draft(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="folder") as error, atomic_path(tmp_path / "folder") as draft:
        (tmp_path / "folder").mkdir()
        draft.write_text("x")
    assert error.value.filename == str(tmp_path / "folder")
