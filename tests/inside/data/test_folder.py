from __future__ import annotations

import os

import pytest

from entrypoints.contract import cards
from entrypoints.contract.statuses import UsageError
from entrypoints.data.images import folder
from entrypoints.data.images.folder import list_images
from entrypoints.data.source import LARGEST
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve


def put(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_classes_and_images_are_sorted_and_labelled(tmp_path):
    put(tmp_path, "dog/2.png", "dog/1.JPG", "cat/a.jpeg", "empty/readme.txt")
    listing = list_images(tmp_path)
    assert listing.classes == ("cat", "dog")
    assert listing.images == (("cat/a.jpeg", 0), ("dog/1.JPG", 1), ("dog/2.png", 1))


def test_hidden_files_broken_links_and_other_files_are_passed_over(tmp_path):
    put(tmp_path, "cat/a.jpg", "cat/.b.jpg", "cat/notes.txt", ".git/c.jpg", "loose.jpg", "cat/folder.jpg/d.png")
    (tmp_path / "cat" / "link.jpg").symlink_to(tmp_path / "gone.jpg")
    (tmp_path / "lynx").symlink_to(tmp_path / "gone")
    assert list_images(tmp_path).images == (("cat/a.jpg", 0),)


def test_links_are_followed(tmp_path):
    put(tmp_path, "all/cat/a.jpg", "all/dog/b.jpg", "subset/dog/c.jpg")
    (tmp_path / "subset" / "cat").symlink_to(tmp_path / "all" / "cat")
    (tmp_path / "subset" / "dog" / "b.jpg").symlink_to("../../all/dog/b.jpg")
    assert list_images(tmp_path / "subset").images == (("cat/a.jpg", 0), ("dog/b.jpg", 1), ("dog/c.jpg", 1))


def test_what_is_no_image_folder_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        list_images(tmp_path / "absent")
    with pytest.raises(UsageError, match="no class folders"):
        list_images(tmp_path)
    put(tmp_path, "loose.jpg")
    with pytest.raises(UsageError, match="no class folders"):
        list_images(tmp_path)
    put(tmp_path, "cat/readme.txt")
    with pytest.raises(UsageError, match="folders without images"):
        list_images(tmp_path)


@pytest.mark.parametrize("locked", ["", "cat"])
def test_an_unreadable_folder_is_refused(tmp_path, locked):
    put(tmp_path, "cat/a.jpg")
    tmp_path.chmod(0o755)
    (tmp_path / locked).chmod(0o000 if locked else 0o300)
    root = os.geteuid() == 0
    parents = [parent for parent in tmp_path.parents if root and parent.stat().st_uid == 0 and "pytest" in str(parent)]
    modes = [(parent, parent.stat().st_mode) for parent in parents]
    try:
        for parent in parents:
            parent.chmod(0o755)
        if root:  # whom no permission stops
            os.seteuid(65534)
        with pytest.raises(UsageError, match="Permission denied"):
            list_images(tmp_path)
    finally:
        if root:
            os.seteuid(0)
        for parent, mode in modes:
            parent.chmod(mode & 0o777)
        (tmp_path / locked).chmod(0o755)


def test_classes_to_evaluate_are_numbered_as_those_that_were_learnt(tmp_path):
    for name in (
        "all/cat/a.png",
        "all/dog/a.png",
        "all/fox/a.png",
        "some/cat/a.png",
        "some/fox/a.png",
        "two/cat/a.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "two" / "dog").mkdir()
    (tmp_path / "two" / "dog" / "b.png").write_bytes(b"")
    whole, some, two = (folder.Folder(tmp_path / name) for name in ("all", "some", "two"))
    two.numbered_as(whole, "--evaluation-data two")
    with pytest.raises(
        UsageError, match="some: its classes cat, fox are not numbered as those of .*all, cat, dog, fox"
    ):
        some.numbered_as(whole, "--evaluation-data some")
    words = [
        "resnet50",
        "--data",
        str(tmp_path / "all"),
        "--target-accuracy",
        "0.5",
        "--steps",
        "4",
        "--batch-size",
        "1",
    ]
    options = parse([*words, "--warmup-steps", "1", "--evaluation-data", str(tmp_path / "some")])
    with pytest.raises(UsageError, match="are not numbered as those of"):
        resolve(options, cards.load()["resnet50"], None)
    missing = parse([*words, "--warmup-steps", "1", "--evaluation-data", str(tmp_path / "none")])
    with pytest.raises(UsageError, match="^--evaluation-data .*none: no such file or folder"):
        resolve(missing, cards.load()["resnet50"], None)


def test_an_image_larger_than_any_is_not_read(tmp_path):
    put(tmp_path, "cat/a.jpg")
    os.truncate(str(tmp_path / "cat" / "a.jpg"), LARGEST + 1)
    with pytest.raises(ValueError, match="at most 67108864 are read"):
        next(folder.Folder(tmp_path).entries([0], 0)).read()
