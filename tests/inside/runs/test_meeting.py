"""Who is taken for a task of a launch: real sockets, and attacks on the first task's by thousands."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from entrypoints.contract.group import Place
from entrypoints.contract.messages import Rendezvous
from entrypoints.contract.statuses import UsageError
from entrypoints.results.outcome import Ending
from entrypoints.runs import meeting
from entrypoints.runs.hub import Follower, Hello
from entrypoints.runs.launch import Launch
from entrypoints.runs.meeting import Door, Line, proof
from entrypoints.runs.supervise import Orders

SECRET, HELLO = b"a secret of this launch", Hello(1, "n", "h", "0", "image", "runs")
WORDS = list(HELLO)
HERE = Launch("torchrun", 0, 2, 0, (f"of {os.getpid()}",), "127.0.0.1", None)
NONCE = "0123456789abcdef" * 2
ATTACKS = settings(max_examples=examples(300))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
lines = st.lists(st.sampled_from(["task", "hello", "head", "job", ""]) | values, max_size=9).map(json.dumps)


class Unasked(Orders):
    """No orders, and no handlers of signals."""

    def __init__(self):
        self.signals, self.deadline = [], None


@pytest.fixture(scope="module")
def door():
    """A door at a port of this host, at which nobody waits for long."""
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.MonkeyPatch.context() as patch:
        listener.setblocking(False)
        patch.setattr(meeting, "TICK", 0.01)
        yield Door(listener, SECRET, 2)


def came(door, *said):
    """Who was let in while strangers said something, each bytes, or a function of the answer to what it said before."""
    with socket.create_connection(door.listener.getsockname()) as stranger, contextlib.suppress(OSError):
        answer, answers = b"", stranger.makefile("rb")
        let_in: list[Any] = []
        for each in said:
            stranger.sendall(each(json.loads(answer)) if callable(each) else each)
            for _ in range(3):
                let_in.extend(words for _, words in door.arrivals())
            answer = answers.readline() if each is not said[-1] else b""
        stranger.shutdown(socket.SHUT_RDWR)
        while door.strangers:
            let_in.extend(words for _, words in door.arrivals())
        return let_in
    while door.strangers:
        assert not list(door.arrivals())
    return []


def line_of(*words):
    return json.dumps(words).encode() + b"\n"


def hello(answer, secret=SECRET, nonce=NONCE, words=WORDS, word="hello"):
    return line_of("hello", *words, proof(secret, word, [nonce, answer[1]], words))


def test_a_task_of_this_launch_is_let_in(door):
    assert came(door, line_of("task", NONCE), hello) == [WORDS]


@ATTACKS
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_those_of_a_stranger(door, said, whole):
    assert came(door, said + b"\n" * whole) == []


@ATTACKS
@given(st.lists(lines, min_size=1, max_size=3))
def test_any_lines_are_those_of_a_stranger(door, said):
    assert came(door, "".join(f"{line}\n" for line in said).encode()) == []


@pytest.mark.parametrize(
    "said",
    [b"[" * 10_000, b'["task", ' + b"[" * 900 + b"]" * 900 + b"]", b'["task", 1' + b"0" * 9000 + b"]"],
    ids=["brackets", "lists in lists", "digits"],
)
def test_what_parsers_choke_on_is_that_of_a_stranger(door, said):
    assert came(door, said + b"\n") == []


@ATTACKS
@given(st.data())
def test_a_hello_with_one_byte_changed_is_that_of_a_stranger(door, data):
    def changed(answer):
        genuine = bytearray(hello(answer))
        at = data.draw(st.integers(0, len(genuine) - 2))
        genuine[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in (genuine[at], 10)))
        same = json.dumps(json.loads(hello(answer))).encode()
        with contextlib.suppress(ValueError, UnicodeDecodeError):  # such as another letter of an escape
            if json.dumps(json.loads(genuine)).encode() == same:
                return b"\n"
        return bytes(genuine)

    assert came(door, line_of("task", NONCE), changed) == []


@pytest.mark.parametrize(
    "forged",
    [
        lambda answer: hello(answer, secret=b"another secret"),
        lambda answer: hello(answer, secret=b""),
        lambda answer: hello(answer, nonce="f" * 32),
        lambda answer: hello(answer, word="head"),
        lambda answer: hello(["head", "f" * 32]),
        lambda answer: line_of("hello", *WORDS, answer[2]),
        lambda answer: line_of("hello", *WORDS, None),
        lambda answer: line_of("hello", *WORDS),
        lambda answer: line_of("task", NONCE),
    ],
)
def test_a_forged_proof_is_that_of_a_stranger(door, forged):
    assert came(door, line_of("task", NONCE), forged) == []


def test_who_says_nothing_is_sent_away(door, monkeypatch):
    monkeypatch.setattr(meeting, "PATIENCE", 0.0)
    with socket.create_connection(door.listener.getsockname()) as silent:
        while not door.strangers:
            assert not list(door.arrivals())
        assert not list(door.arrivals()) and not door.strangers
        assert silent.recv(1) == b""


def test_a_long_first_line_is_that_of_a_stranger(door):
    """Also if all of it would have been true."""
    words = ["x" * meeting.LONGEST_HELLO]
    assert came(door, line_of("task", NONCE), lambda answer: hello(answer, words=words)) == []


def test_a_genuine_hello_is_of_no_use_a_second_time(door):
    """What was heard on the wire of one connection opens no other one."""
    heard: list[bytes] = []

    def genuine(answer):
        heard.append(hello(answer))
        return heard[-1]

    assert came(door, line_of("task", NONCE), genuine) == [WORDS]
    assert came(door, line_of("task", NONCE), lambda _: heard[0]) == []


def test_a_task_does_not_talk_to_a_stranger(monkeypatch):
    """Whoever listens where the first task should learns neither what it would say, nor the secret."""
    monkeypatch.setenv(meeting.VARIABLE, "a secret of this launch")
    monkeypatch.setattr(meeting, "RENDEZVOUS_TIMEOUT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = subprocess.Popen(
            [sys.executable, "-c", STRANGE_SERVER], stdin=listener.fileno(), stdout=subprocess.PIPE
        )
        launch = HERE._replace(port=listener.getsockname()[1])
        with pytest.raises(UsageError, match="does not know the secret of this launch"):
            meeting.joined(launch, WORDS, Unasked())
        server.kill()
        heard = server.communicate()[0]
    assert b'"task"' in heard and b"runs" not in heard and b"secret" not in heard
    assert meeting.VARIABLE not in os.environ


STRANGE_SERVER = """
import json, socket, sys
listener = socket.socket(fileno=0)
while True:
    peer, _ = listener.accept()
    said = peer.recv(1000)
    peer.sendall(json.dumps(["head", "0" * 32, "0" * 64]).encode() + b"\\n")
    said += peer.recv(1000)
    sys.stdout.buffer.write(said)
    sys.stdout.flush()
    peer.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_a_stranger():
    """The kernel says whose process the other end of a socket without a port is, on both ends."""
    name = meeting._abstract(HERE)
    connect = f"import socket, os; os.setuid(4242); s = socket.socket(socket.AF_UNIX); s.connect({name!r}); s.recv(1)"
    with meeting.opened(HERE) as door:
        other = subprocess.Popen([sys.executable, "-c", connect])
        while not door.refused:
            assert not list(door.arrivals())
        assert other.wait() == 0
    listen = f"import socket, os; os.setuid(4242); s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen(); "
    other = subprocess.Popen([sys.executable, "-c", f"{listen} print(flush=True); s.accept()"], stdout=subprocess.PIPE)
    assert other.stdout and other.stdout.readline()
    with pytest.raises(PermissionError, match="4242"):
        meeting._connection(HERE)
    other.kill()
    other.communicate()


class TestFileOfTheSecret:
    """Those who wait for the first task rely on a file only if nobody else can have written or read it."""

    launch = HERE._replace(port=7)

    @pytest.fixture(autouse=True)
    def home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        return tmp_path

    def test_others_find_it_while_tasks_meet(self, home):
        with meeting.shared_secret(self.launch) as secret:
            (file,) = (home / ".sifmark").iterdir()
            assert meeting.found_secret(self.launch) == secret and len(secret) == 64
            assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert not list(file.parent.iterdir())

    def test_it_is_another_one_each_time(self):
        drawn = set()
        for _ in range(20):
            with meeting.shared_secret(self.launch) as secret:
                drawn.add(secret)
        assert len(drawn) == 20

    def test_who_does_not_find_it_says_so(self, monkeypatch):
        monkeypatch.setattr(meeting, "RENDEZVOUS_TIMEOUT", 0.5)
        with pytest.raises(UsageError, match="its secret, in ~/.sifmark: No such file"):
            meeting.joined(self.launch, WORDS, Unasked())

    def test_another_launch_has_another_one(self):
        with meeting.shared_secret(self.launch), pytest.raises(OSError, match="No such file"):
            meeting.found_secret(self.launch._replace(step=("another",)))

    def test_what_a_killed_launch_has_left_is_replaced(self, home):
        (home / ".sifmark").mkdir()
        (home / ".sifmark" / meeting._name(self.launch)).write_bytes(b"0" * 64)
        with meeting.shared_secret(self.launch) as secret:
            assert meeting.found_secret(self.launch) == secret != b"0" * 64

    @pytest.mark.parametrize("wrong", ["readable", "a link", "short", "long", "a pipe", "a folder", "in one of others"])
    def test_what_others_may_have_written_or_read_is_not_believed(self, home, wrong):
        with meeting.shared_secret(self.launch) as secret:
            folder = home / ".sifmark"
            file = folder / meeting._name(self.launch)
            if wrong == "readable":
                file.chmod(0o640)
            elif wrong in ("short", "long"):
                file.write_bytes(secret[:10] if wrong == "short" else secret * 2)
            elif wrong == "in one of others":
                folder.chmod(0o770)
            else:
                file.rename(home / "elsewhere")
                if wrong == "a link":
                    file.symlink_to(home / "elsewhere")
                elif wrong == "a pipe":
                    os.mkfifo(file, 0o600)
                else:
                    file.mkdir(0o700)
            with pytest.raises(OSError, match="its secret"):
                meeting.found_secret(self.launch)
            folder.chmod(0o700)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_that_of_another_user_is_not_believed(self, home):
        with meeting.shared_secret(self.launch):
            os.chown(home / ".sifmark" / meeting._name(self.launch), 4242, 4242)
            with pytest.raises(OSError, match="belongs to others"):
                meeting.found_secret(self.launch)

    @pytest.mark.parametrize("text", ["x", "x" * (meeting.SHORTEST_SECRET - 1)])
    def test_a_secret_that_can_be_guessed_is_refused(self, text):
        with pytest.raises(UsageError) as refused:
            meeting.given_secret({meeting.VARIABLE: text})
        assert refused.value.code == "launch-secret"


@contextlib.contextmanager
def follower():
    """Another task of the launch with two ranks, and its end of the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours)
        line.trust()
        task = Follower(line, HELLO, Unasked())
        task.ranks, task.open = range(1, 3), True
        yield task, theirs


said_by_a_task = st.tuples(
    st.sampled_from(["message", "ended", "consumed", "hello", "job"]) | values,
    st.integers(0, 3) | values,
    values,
    values,
)


@ATTACKS
@given(st.lists(said_by_a_task, min_size=1, max_size=4))
def test_whatever_a_task_of_the_launch_says_ends_at_most_that_task(said):
    with follower() as (task, theirs):
        theirs.sendall("".join(f"{json.dumps(each)}\n" for each in said).encode())
        theirs.close()
        while task.open:
            assert all(rank in (1, 2) for rank, _ in task.receive())
        assert task.failed and all(isinstance(ending, Ending) for ending in task.endings.values())


@pytest.mark.parametrize(
    "said", [5, {}, [0], [0, None, None, "no"], ["0", None, None, False], [0, "completed", None, False], [0] * 9]
)
def test_what_is_no_ending_of_a_rank_ends_its_task(said):
    with follower() as (task, theirs):
        theirs.sendall(line_of("ended", 1, said, False))
        assert not list(task.receive()) and task.failed
        assert [ending.lost for ending in task.endings.values()] == ["h", "h"]


@pytest.mark.parametrize(("seen", "passed_on"), [("10.0.0.7", "10.0.0.7"), ("127.0.0.1", "10.0.0.1")])
def test_ranks_of_another_host_are_where_their_task_connected_from(monkeypatch, seen, passed_on):
    monkeypatch.setattr(Line, "address", seen)
    with follower() as (task, theirs):
        task.assign("run", Named(), [Place(1, 2, 0, 1, "10.0.0.1")])
        theirs.sendall(line_of("message", 1, ["Rendezvous", ["10.0.0.1", 7, True]]))
        assert list(task.receive()) == [(1, Rendezvous(passed_on, 7, everyone=True))]


class Named:
    """As much of a configuration as is sent."""

    def as_json(self):
        return {}
