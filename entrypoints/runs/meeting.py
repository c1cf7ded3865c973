"""Where the tasks of a launch meet, and how they know each other: strangers are sent away, and the launch goes on.

Tasks of one host meet at an abstract Unix socket: there the kernel says whose process the other end is. Tasks of
several hosts meet at a port, where both ends prove that they know the secret of their launch, which is never sent.

The socket is ours since nothing else can carry what tasks have to say. It has to work before any framework is imported,
and to outlive a rank that dies before it joins. No launcher's own (PMIx, PMI) is in every image, and torchrun's
rendezvous and PyTorch's TCPStore take everybody: https://github.com/pytorch/pytorch/security/policy.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import stat
import struct
import time
from pathlib import Path
from typing import Any, Iterator, MutableMapping, Sequence

from entrypoints.contract.group import LOOPBACK
from entrypoints.contract.statuses import UsageError
from entrypoints.runs.launch import Launch
from entrypoints.runs.protocol import LONGEST_LINE
from entrypoints.runs.supervise import CHUNK, GRACE, TICK, Orders, complete_lines
from entrypoints.system.console import status

RENDEZVOUS_TIMEOUT = 120.0  # s for all tasks of a launch to arrive
PATIENCE = GRACE  # s for a stranger to say who it is
LONGEST_HELLO = 16 << 10  # bytes
MOST_STRANGERS = 64  # besides the tasks that may arrive at once
MOST_NOTED = 10  # strangers of which standard error says something
VARIABLE = "SIFMARK_LAUNCH_SECRET"
SHORTEST_SECRET = 16  # characters
BYTES = 32  # of a secret, and half as many of a nonce
NOBODY = 65534  # linux/highuid.h: every user that a user namespace does not know
FOLDER = Path("~/.sifmark")
REMEDY = f"give all tasks the same {VARIABLE}: docs/many-devices.md says how"


class Line:
    """A connection of lines, each a JSON array that begins with a word."""

    def __init__(self, connection: socket.socket) -> None:
        self.stream, self.rest_of_line = connection, bytearray()
        self.open, self.full, self.longest = True, False, LONGEST_HELLO

    def send(self, *words: Any) -> None:
        """Send one line; nothing to a peer that is gone, which reading will show."""
        with contextlib.suppress(OSError):
            self.stream.sendall(json.dumps(words).encode() + b"\n")

    def read(self) -> list[list[Any]]:
        """Return the lines that have arrived; none, and `open` is False, if the peer is gone or sends anything else."""
        try:
            chunk = self.stream.recv(CHUNK)
            lines = complete_lines(self.rest_of_line, chunk)
            if max(map(len, (*lines, self.rest_of_line))) > self.longest:
                raise ValueError("a line that is too long")
            words = [json.loads(line) for line in lines]
            if not all(isinstance(each, list) and each and isinstance(each[0], str) for each in words):
                raise ValueError("a line that is no array with a word in front")
        except BlockingIOError:  # the kernel took it back
            return []
        except (OSError, ValueError, RecursionError):
            chunk, words = b"", []
        self.full, self.open = len(chunk) == CHUNK, bool(chunk)
        return words

    def trust(self) -> None:
        """Take longer lines and longer waits: the peer is of this launch."""
        self.longest = LONGEST_LINE
        self.stream.settimeout(None)

    @property
    def address(self) -> str:
        """The peer's address; that of this host if it is one of its processes."""
        try:
            return LOOPBACK if self.stream.family == socket.AF_UNIX else str(self.stream.getpeername()[0])
        except OSError:  # it is gone
            return "unknown"


class Stranger:
    """A connection of which nobody knows yet whose it is."""

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        connection.setblocking(False)
        self.line, self.stream, self.secret = Line(connection), connection, secret
        self.until = time.monotonic() + PATIENCE
        self.nonces: list[str] = []

    def hello(self) -> list[Any] | None:
        """Return what it says of itself with the proof that it is of this launch; None if it has said nothing yet.

        Raises ValueError, with a reason, if it says anything else.
        """
        for word, *rest in self.line.read():
            if not all(isinstance(each, (int, str)) for each in rest):
                raise ValueError("it does not speak as a task does")
            if word == "task" and not self.nonces and len(rest) == 1:
                self.nonces = [str(rest[0]), secrets.token_hex(BYTES // 2)]
                self.line.send("head", self.nonces[1], proof(self.secret, "head", self.nonces))
            elif word == "hello" and self.nonces and _proves(rest, self.secret, "hello", self.nonces):
                return rest[:-1]
            else:
                raise ValueError("it does not prove that it is of this launch")
        if not self.line.open:
            raise ValueError("it left, or sent something other than a task does")
        return None


class Door:
    """Where the first task of a launch waits for the others."""

    def __init__(self, listener: socket.socket, secret: bytes, tasks: int) -> None:
        self.listener, self.secret, self.most = listener, secret, tasks + MOST_STRANGERS
        self.strangers: list[Stranger] = []
        self.refused = 0

    def arrivals(self) -> Iterator[tuple[Line, list[Any]]]:
        """Yield the tasks of this launch that say what they are within a TICK; nobody waits for anybody else."""
        ready = select.select([self.listener, *(each.stream for each in self.strangers)], [], [], TICK)[0]
        for stranger in list(self.strangers):
            try:
                hello = stranger.hello() if stranger.stream in ready else None
                if hello is None and time.monotonic() > stranger.until:
                    raise ValueError(f"it did not say what it is within {PATIENCE:g} s")
            except ValueError as error:
                self.strangers.remove(stranger)
                self.refuse(stranger.line, str(error))
                continue
            if hello is not None:
                self.strangers.remove(stranger)
                yield stranger.line, hello
        if self.listener in ready:
            self._open()

    def _open(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:  # it left at once, or there is no file descriptor for it
            return
        try:
            _require_own_process(connection)
        except PermissionError as error:
            self.refuse(Line(connection), str(error.strerror))
            return
        self.strangers.append(Stranger(connection, self.secret))
        if len(self.strangers) > self.most:
            self.refuse(self.strangers.pop(0).line, "too many others arrived after it")

    def refuse(self, line: Line, reason: str) -> None:
        """Send somebody away, and say so to people. What it has said is shown to nobody."""
        self.refused += 1
        if self.refused <= MOST_NOTED:
            last = "; others are not reported" if self.refused == MOST_NOTED else ""
            status(f"a stranger from {line.address} was sent away: {reason}{last}")
        line.stream.close()

    def close(self) -> None:
        """Send away who is still there."""
        for stranger in self.strangers:
            stranger.stream.close()
        if self.refused > MOST_NOTED:
            status(f"{self.refused} strangers were sent away while the tasks of this launch met")


@contextlib.contextmanager
def opened(launch: Launch) -> Iterator[Door]:
    """Wait for the tasks of a launch while the context is open. Raises UsageError if that cannot be done here."""
    with shared_secret(launch) as secret, _listening(launch) as listener:
        door = Door(listener, secret, launch.tasks)
        try:
            yield door
        finally:
            door.close()


def joined(launch: Launch, words: Sequence[Any], orders: Orders) -> Line:
    """Return the line to the first task of a launch, which has heard the words that this one says of itself.

    Raises UsageError if it is not there in time, or is none of this launch.
    """
    if launch.head is None:
        raise UsageError(f"{launch.launcher} names no host of its first task", "give --rendezvous HOST:PORT")
    given = given_secret()
    until, cause = time.monotonic() + RENDEZVOUS_TIMEOUT, ""
    sent_away = "what answers does not know the secret of this launch, or left"
    while time.monotonic() < until and not orders.stop():
        try:
            secret = found_secret(launch) if given is None else given
            line = Line(_connection(launch))
            if _introduced(line, words, secret, until, orders):
                return line
            line.stream.close()
            cause = sent_away
        except OSError as error:
            if cause != sent_away:  # one that left after it had answered says nothing better
                cause = str(error.strerror or error)
        time.sleep(TICK / 5)
    where = "on this host" if launch.port is None else f"{launch.head}:{launch.port}"
    raise UsageError(
        f"the first task, {where}, does not answer: {cause}",
        f"did it start, and is its host right? If it has another secret, {REMEDY}",
    )


def _introduced(line: Line, words: Sequence[Any], secret: bytes, until: float, orders: Orders) -> bool:
    """Return whether both ends have proved to each other that they are of this launch. What follows is the head's."""
    nonces = [secrets.token_hex(BYTES // 2)]
    line.send("task", *nonces)
    answer: list[list[Any]] = []
    while line.open and not answer and time.monotonic() < until and not orders.stop():
        if select.select([line.stream], [], [], TICK)[0]:
            answer = line.read()
    if len(answer) != 1 or answer[0][0] != "head" or len(answer[0]) != 3:
        return False
    nonces.append(str(answer[0][1]))
    if not _proves(answer[0][2:], secret, "head", nonces):
        return False
    line.send("hello", *words, proof(secret, "hello", nonces, words))
    line.trust()
    return True


def proof(secret: bytes, word: str, nonces: Sequence[str], said: Sequence[Any] = ()) -> str:
    """Return what only those can compute who know the secret, of what is said and of numbers that both ends drew."""
    text = json.dumps([word, *nonces, *said])
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def _proves(words: Sequence[Any], secret: bytes, word: str, nonces: Sequence[str]) -> bool:
    """Return whether words end with their proof."""
    *said, given = words or [None]
    expected = proof(secret, word, nonces, said)
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def given_secret(environment: MutableMapping[str, str] = os.environ) -> bytes | None:
    """Take the secret of the launch out of the environment, so that no other process gets it; None if it has none.

    Raises UsageError for one that can be guessed.
    """
    text = environment.pop(VARIABLE, "")
    if text and len(text) < SHORTEST_SECRET:
        raise UsageError(f"{VARIABLE} has fewer than {SHORTEST_SECRET} characters", REMEDY, code="launch-secret")
    return text.encode("utf-8", "surrogateescape") or None


@contextlib.contextmanager
def shared_secret(launch: Launch) -> Iterator[bytes]:
    """Yield the secret of a launch, for its first task. Without the variable others find it in a file meanwhile.

    Raises UsageError if they would not.
    """
    given = given_secret()
    if launch.port is None or given is not None:
        yield given or b""
        return
    drawn, name = secrets.token_hex(BYTES).encode(), _name(launch)
    draft = f"{name}.{secrets.token_hex(4)}"
    try:
        _folder().mkdir(mode=0o700, exist_ok=True)
        with _own_folder() as folder:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(drawn)
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)  # one of an earlier launch that was killed
    except OSError as error:
        cause = f"the tasks of a launch on several hosts share no secret: {FOLDER}: {error.strerror}"
        raise UsageError(cause, REMEDY, code="launch-secret") from None
    try:
        yield drawn
    finally:
        with contextlib.suppress(OSError), _own_folder() as folder:
            os.unlink(name, dir_fd=folder)


def found_secret(launch: Launch) -> bytes:
    """Return the secret that the first task has left for the others of this user. Raises OSError if it has not."""
    if launch.port is None:
        return b""
    try:
        return _secret_in_file(launch)
    except OSError as error:
        raise OSError(error.errno, f"its secret, in {FOLDER}: {error.strerror}") from None


def _secret_in_file(launch: Launch) -> bytes:
    with _own_folder() as folder:
        descriptor = os.open(_name(launch), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as stream:
            _require_own(os.fstat(descriptor), stat.S_IFREG, 0o077)
            secret = stream.read(2 * BYTES + 1)
    if len(secret) != 2 * BYTES:
        raise OSError(errno.EIO, "the file of the secret has another length")
    return secret


def _folder() -> Path:
    try:
        return FOLDER.expanduser()
    except RuntimeError as error:
        raise OSError(errno.ENOENT, str(error)) from None


@contextlib.contextmanager
def _own_folder() -> Iterator[int]:
    """Open the folder of secrets, which no link leads to and nobody else may write to. Raises OSError for another."""
    descriptor = os.open(_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _require_own(os.fstat(descriptor), stat.S_IFDIR, 0o022)
        yield descriptor
    finally:
        os.close(descriptor)


def _require_own(what: os.stat_result, kind: int, others: int) -> None:
    """Raise OSError if something is of another kind or user, or others have one of these rights to it."""
    if stat.S_IFMT(what.st_mode) != kind or what.st_uid != os.geteuid() or what.st_mode & others:
        raise PermissionError(errno.EPERM, "it belongs to others, or they may change or read it")


def _name(launch: Launch) -> str:
    """Return the name of a launch, which no other one of this user has at a time.

    Without its host, of which nodes may have different names.
    """
    words = (os.getuid(), launch.launcher, launch.step, launch.port)
    return f"launch-{hashlib.sha256(repr(words).encode()).hexdigest()}"


def _listening(launch: Launch) -> socket.socket:
    """Return a socket at which tasks arrive. Raises UsageError if it cannot be had."""
    try:
        if launch.port is None:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(_abstract(launch))
        else:
            listener = socket.create_server((LOOPBACK if launch.head == LOOPBACK else "", launch.port))
        listener.listen(launch.tasks + MOST_STRANGERS)
        listener.setblocking(False)
        return listener
    except OSError as error:
        where = "the socket" if launch.port is None else f"port {launch.port}"
        raise UsageError(
            f"{where}, at which the tasks of this launch meet: {error.strerror}",
            "give --rendezvous HOST:PORT",
            code="system-error",
        ) from None


def _connection(launch: Launch) -> socket.socket:
    """Return a connection to whatever waits where the first task should. Raises OSError if nothing does."""
    if launch.port is not None:
        return socket.create_connection((launch.head or "", launch.port), timeout=TICK)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TICK)
    connection.connect(_abstract(launch))
    _require_own_process(connection)
    return connection


def _abstract(launch: Launch) -> bytes:
    """Return the address of a Unix socket without a file. It is gone when its process is."""
    return b"\0sifmark-" + _name(launch).encode()


def _require_own_process(connection: socket.socket) -> None:
    """Raise PermissionError if the other end of a Unix socket is a process of another user: unix(7), SO_PEERCRED."""
    if connection.family != socket.AF_UNIX:
        return
    *_, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid() or user == NOBODY:
        raise PermissionError(errno.EPERM, f"it belongs to user {user}")
