"""Where the document goes, and every way in which it cannot."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import threading

import pytest
from program import ROOT, checked

from entrypoints.contract.statuses import UsageError
from entrypoints.runs import output

RUN = ("resnet50", "--smoke")
STRANGER = 65534  # user and group


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent/result.json", "there is no folder"),
        ("pipe", "no regular file"),
        ("", "no regular file"),
        ("file/result.json", "there is no folder"),
    ],
)
def test_a_bad_place_is_refused_before_the_run(double, tmp_path, name, said):
    (tmp_path / "file").write_text("")
    os.mkfifo(str(tmp_path / "pipe"))
    code, output, errors = double.run(*RUN, "--output", str(tmp_path / name) if name else "")
    assert (code, output) == (2, "")
    assert said in errors and "importing" not in errors


def test_a_place_that_cannot_be_written_is_refused_before_the_run(double):
    code, output, errors = double.run(*RUN, "--output", "/proc/result.json")  # not even by root
    assert (code, output) == (2, "")
    assert "/proc" in errors and "importing" not in errors


@pytest.mark.parametrize(
    ("words", "where", "in_file"),
    [
        ((), {"APPTAINER_CONTAINER": "/double.sif"}, True),
        (("--output", "-"), {"APPTAINER_CONTAINER": "/double.sif"}, False),
        ((), {}, False),  # in Docker the folder would end with the container
    ],
)
def test_a_person_gets_a_file_and_json_on_request(double, tmp_path, words, where, in_file):
    ours, theirs = pty.openpty()
    process = double.start(*RUN, *words, output=theirs, **where)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # EIO: the program has closed the terminal
        while block := os.read(ours, 65536):
            written += block
    errors = process.communicate()[1]
    os.close(ours)
    assert process.returncode == 0, errors
    kept = list(tmp_path.glob("results/*.json"))
    if in_file:
        assert not written and checked(kept[0].read_text("utf-8")) and f"results/{kept[0].name}" in errors
    else:
        assert not kept and checked(written.decode())


def test_the_file_holds_the_document_and_standard_output_nothing(double, tmp_path):
    target = tmp_path / "result.json"
    target.write_text("an older one")
    assert double.run(*RUN, "--output", str(target))[:2] == (0, "")
    assert checked(target.read_text("utf-8"))["status"]["state"] == "completed"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) & 0o111 == 0


def test_a_failed_run_writes_its_file_too(double, tmp_path):
    target = tmp_path / "result.json"
    assert double.run(*RUN, "--output", str(target), fault="exit")[:2] == (4, "")
    assert checked(target.read_text("utf-8"))["status"]["state"] == "crashed"


def test_a_link_stays_a_link(double, tmp_path):
    (tmp_path / "link.json").symlink_to("real.json")
    double.run(*RUN, "--output", str(tmp_path / "link.json"))
    assert (tmp_path / "link.json").is_symlink()
    checked((tmp_path / "real.json").read_text("utf-8"))
    (tmp_path / "latest.json").symlink_to("one without an ending")
    double.run(*RUN, "--output", str(tmp_path / "latest.json"))
    checked((tmp_path / "one without an ending").read_text("utf-8"))


@pytest.fixture()
def shared(tmp_path):
    """A folder like /tmp: all may write to it, and nobody removes what is another's."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "victim.json").write_text("precious")
    return folder


def link_of_a_stranger(place, target):
    if os.geteuid():
        pytest.skip("only root can give a link away")
    place.symlink_to(target)
    os.lchown(str(place), STRANGER, STRANGER)


@pytest.mark.parametrize(
    ("link", "target", "named"),
    [
        ("result.json", "../victim/victim.json", "result.json"),
        ("folder", "../victim", "folder/victim.json"),
        ("folder", "../victim", "folder/"),
        ("result.json", "../victim/new.json", "result.json"),
    ],
)
def test_a_link_of_a_stranger_is_not_followed(double, shared, link, target, named):
    """As the kernel, which does not see that a path is resolved by reading its links."""
    link_of_a_stranger(shared / link, target)
    code, said, errors = double.run(*RUN, "--output", f"{shared}/{named}")
    assert (code, said) == (2, "") and "a link of another user" in errors and "importing" not in errors
    assert [path.name for path in (shared.parent / "victim").iterdir()] == ["victim.json"]
    assert (shared.parent / "victim" / "victim.json").read_text() == "precious"


def test_a_link_of_a_stranger_behind_one_of_ours_is_not_followed(shared):
    link_of_a_stranger(shared / "theirs.json", "../victim/victim.json")
    (shared.parent / "ours.json").symlink_to("shared/theirs.json")
    with pytest.raises(UsageError, match=r"theirs\.json is a link of another user"):
        output.open_writer(str(shared.parent / "ours.json"), 1)


def test_our_own_link_is_followed_also_where_all_may_write(shared):
    (shared / "result.json").symlink_to("../victim/victim.json")
    output.open_writer(str(shared / "result.json"), 1).write(document(1))
    assert (shared / "result.json").is_symlink()
    assert (shared.parent / "victim" / "victim.json").read_bytes() == output.indented_text(document(1))


def test_a_link_of_a_stranger_is_followed_where_only_we_may_write(shared):
    """Somebody whom we allow to write has put it there."""
    link_of_a_stranger(shared.parent / "result.json", "victim/victim.json")
    output.open_writer(str(shared.parent / "result.json"), 1).write(document(1))
    assert (shared.parent / "victim" / "victim.json").read_bytes() == output.indented_text(document(1))


def test_a_place_that_fails_later_does_not_lose_the_document(double, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = double.start("resnet50", "--steps", "300", "--output", str(folder / "result.json"))
    for line in process.stderr:
        if "measuring" in line:
            folder.rmdir()
            break
    output, errors = process.communicate()
    assert process.returncode == 6 and output == ""
    assert "could not be written" in errors
    assert checked(errors.splitlines()[-1])["status"]["state"] == "completed"


def test_nobody_reading_standard_output_is_told_too(double):
    process = double.start(*RUN)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() == 6
    assert "could not be written" in errors and "Traceback" not in errors


def test_nobody_reading_standard_error_does_not_stop_a_run(double):
    process = double.start("resnet50", "--steps", "30")
    process.stderr.close()
    output = process.stdout.read()
    assert process.wait() == 0
    assert checked(output)["status"]["state"] == "completed"


def in_a_shell(double, words, *arguments, fault=""):
    """Exit code, standard output and standard error of a program that a shell starts after `words`."""
    argv = ["sh", "-c", words, "sh", sys.executable, "-s", "-B", str(double.main), *arguments]
    environment = {**os.environ, "DOUBLE_FAULT": fault}
    finished = subprocess.run(argv, cwd=str(double.folder), env=environment, capture_output=True, check=False)
    return finished.returncode, finished.stdout.decode(), finished.stderr.decode()


@pytest.mark.parametrize("fault", ["", "exit"])
def test_a_standard_error_that_is_closed_costs_nothing_but_the_messages(double, fault):
    code, said, errors = in_a_shell(double, 'exec "$@" 2>&-', *RUN, fault=fault)
    assert errors == "" and checked(said)["status"]["exit_code"] == code
    assert checked(said)["status"]["state"] == ("crashed" if fault else "completed")


def test_a_name_that_is_no_text_is_no_trouble_for_a_standard_error_that_is_closed(double):
    """Python's own standard error writes what is no UTF-8 as escapes; the one that replaces it has to as well."""
    code, said, _ = in_a_shell(double, 'exec "$@" 2>&-', *RUN, "--output", "\udcff/result.json")
    assert (code, said) == (2, "")


def test_a_standard_output_that_is_closed_is_told(double):
    code, said, errors = in_a_shell(double, 'exec "$@" >&-', *RUN)
    assert (code, said) == (6, "") and "could not be written" in errors and "Traceback" not in errors
    assert checked(errors.splitlines()[-1])["status"]["state"] == "completed"


def test_standard_streams_that_are_all_closed_give_their_numbers_to_no_file(double):
    assert in_a_shell(double, 'exec "$@" <&- >&- 2>&-', *RUN) == (6, "", "")
    code, _, _ = in_a_shell(double, 'exec "$@" <&- >&- 2>&-', *RUN, "--output", "result.json")
    assert code == 0 and checked((double.folder / "result.json").read_text("utf-8"))["status"]["state"] == "completed"


def test_too_few_file_descriptors_are_a_result(double):
    code, said, errors = in_a_shell(double, 'ulimit -n 8; exec "$@"', *RUN, "--repeat", "4")
    documents = [checked(line) for line in said.splitlines()]
    assert code == 4 and len(documents) == 4 and "Traceback" not in errors
    for each in documents:
        assert each["status"]["state"] == "crashed" and "Too many open files" in each["status"]["message"]
        assert each["steps"]["count"] == 0


def test_a_document_that_is_not_valid_is_our_defect(double, double_tree):
    schema = double_tree / "schemas" / "result-1.2.json"
    original = schema.read_text("utf-8")
    schema.write_text(json.dumps({"required": ["something_else"]}))
    try:
        code, output, errors = double.run(*RUN)
    finally:
        schema.write_text(original)
    assert (code, output) == (6, "")
    assert "'something_else' is a required property" in errors


def test_without_jsonschema_nothing_runs(double, tmp_path):
    blocked = tmp_path / "blocked" / "jsonschema"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('no jsonschema here')")
    code, output, errors = double.run(*RUN, PYTHONPATH=str(blocked.parent))
    assert (code, output) == (2, "")
    assert "[package-missing]" in errors and "importing" not in errors


def test_a_folder_gets_a_file_for_each_result(double):
    code, said, _ = double.run(*RUN, "--repeat", 2, "--output", "made/of late/")
    paths = list((double.folder / "made" / "of late").iterdir())
    assert (code, said) == (0, "") and len(paths) == 2
    for path in paths:
        document = checked(path.read_text("utf-8"))
        start = re.sub("[-:.]", "", document["started"])
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        assert path.name == f"resnet50-double-{start}-{digest}.json"


def test_a_folder_that_is_there_needs_no_slash(double, tmp_path):
    (tmp_path / "results").mkdir()
    assert double.run(*RUN, "--output", "results")[0] == 0
    assert len(list((tmp_path / "results").glob("*.json"))) == 1


@pytest.mark.parametrize("name", ["results", "result.txt", "results.d"])
def test_a_name_that_says_neither_file_nor_folder_is_refused(double, name):
    code, said, errors = double.run(*RUN, "--output", name)
    assert (code, said) == (2, "") and f"for a folder, end it in a slash: {name}/" in errors
    assert not (double.folder / name).exists()


def test_a_folder_that_cannot_be_made_is_refused_before_the_run(double, tmp_path):
    (tmp_path / "file").write_text("")
    code, said, errors = double.run(*RUN, "--output", "file/results/")
    assert (code, said) == (2, "") and "cannot make that folder" in errors


WRITER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from entrypoints.runs.output import open_writer
writer = open_writer(sys.argv[2], int(sys.argv[4]))
for line in open(sys.argv[3]):
    sys.stdin.read(1)  # all begin at once
    writer.write(json.loads(line))
"""


def document(number):
    """As much of a document as the name of its file is made of, and a body of a real one's size."""
    return {
        "started": "2024-02-29T12:00:00.123Z",
        "workload": {"name": "resnet50"},
        "configuration": {"framework": "pytorch", "device": "cpu"},
        "provenance": {"image": None},
        "body": [number, "x" * 30000],
    }


def writers(folder, target, contents, rounds):
    """Processes that write each round's document to `target` at the same time."""
    started = []
    for index, content in enumerate(contents):
        source = folder / f".source{index}"
        source.write_text("".join(json.dumps(document([content, turn])) + "\n" for turn in range(rounds)))
        argv = [sys.executable, "-c", WRITER, str(ROOT), str(target), str(source), str(rounds)]
        started.append(subprocess.Popen(argv, stdin=subprocess.PIPE))
    for _ in range(rounds):
        for process in started:
            assert process.stdin
            process.stdin.write(b".")
            process.stdin.flush()
    for process in started:
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize("links", [True, False])
def test_many_writers_into_one_folder_lose_nothing(tmp_path, monkeypatch, links):
    if not links:  # a file system without hard links
        monkeypatch.setitem(globals(), "WRITER", "import os\ndef link(*_): raise OSError\nos.link = link\n" + WRITER)
    contents, rounds = [*range(31), 0], 5  # two of the 32 write the same
    writers(tmp_path, f"{tmp_path}/results/", contents, rounds)
    paths = list((tmp_path / "results").iterdir())
    assert all(path.name.startswith("resnet50-pytorch_cpu-20240229T120000123Z-") for path in paths)
    bodies = sorted(json.loads(path.read_text("utf-8"))["body"][0] for path in paths)
    assert bodies == sorted([content, turn] for content in range(31) for turn in range(rounds))
    for path in paths:
        assert path.read_bytes() == output.indented_text(document(json.loads(path.read_text("utf-8"))["body"][0]))


def test_many_writers_into_one_file_of_lines_lose_nothing(tmp_path):
    writers(tmp_path, tmp_path / "results.jsonl", range(8), rounds=5)
    bodies = [json.loads(line)["body"][0] for line in (tmp_path / "results.jsonl").read_text("utf-8").splitlines()]
    assert sorted(bodies) == [[content, turn] for content in range(8) for turn in range(5)]


def test_a_writer_of_lines_waits_for_another(tmp_path):
    target = tmp_path / "results.jsonl"
    writer = output.open_writer(str(target), 1)
    with target.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=writer.write, args=(document(1),))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and not target.stat().st_size
    thread.join()
    assert target.read_bytes() == output.line_text(document(1))


def test_another_file_of_the_same_name_stays(tmp_path):
    store = output.open_writer(f"{tmp_path}/", 1)
    short, long = output.file_names(document(1), output.indented_text(document(1)))
    (tmp_path / short).write_text("edited by hand")
    store.write(document(1))
    assert (tmp_path / short).read_text() == "edited by hand"
    assert (tmp_path / long).read_bytes() == output.indented_text(document(1))
    (tmp_path / long).write_text("this one too")
    with pytest.raises(FileExistsError):
        store.write(document(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([short, long])


@pytest.mark.parametrize("moment", ["fsync", "link"])
def test_a_writer_killed_in_the_middle_leaves_nothing_that_looks_like_a_result(tmp_path, moment):
    (tmp_path / "source").write_text(json.dumps(document(1)) + "\n")
    dying = f"import os, signal\nos.{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nsys.stdin.read(1)\n"
    script = WRITER.replace("    sys.stdin.read(1)", "    " + dying.replace("\n", "\n    "))
    argv = [sys.executable, "-c", script, str(ROOT), f"{tmp_path}/results/", str(tmp_path / "source"), "1"]
    assert subprocess.run(argv, input=b"..", check=False).returncode == -signal.SIGKILL
    left = [path.name for path in (tmp_path / "results").iterdir()]
    assert len(left) == 1 and left[0].startswith(".")


@pytest.mark.parametrize(
    ("name", "order"),
    [("a.json", ["file", "name", "folder"]), ("all/", ["file", "name", "folder"]), ("a.jsonl", ["file", "folder"])],
)
def test_what_is_written_is_on_the_disk_with_its_name(tmp_path, monkeypatch, name, order):
    """The power may fail at any time: tests/unit/core/test_power_cut.py cuts it."""
    writer = output.open_writer(f"{tmp_path}/{name}", 1)
    done = []
    fsync = os.fsync

    def noted(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def named(function):
        def call(*names):
            done.append("name")
            return function(*names)

        return call

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "link", named(os.link))
    monkeypatch.setattr(output.Path, "replace", named(os.replace))
    writer.write(document(1))
    assert done == order


def test_a_line_that_does_not_fit_leaves_no_part(tmp_path, monkeypatch):
    target = tmp_path / "results.jsonl"
    writer = output.open_writer(str(target), 1)
    writer.write(document(1))
    before = target.read_bytes()

    write = os.write
    written: list[int] = []

    def full(descriptor, data):
        if written:
            raise OSError(28, "No space left on device")
        written.append(write(descriptor, data[:100]))
        return written[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(document(2))
    assert written == [100]
    assert target.read_bytes() == before
