"""Chromium by its DevTools protocol over pipes: how a page looks, what it says, and what it asks for."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Message = dict[str, Any]
_WORDS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
          "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")  # fmt: skip
KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}  # the number that Windows gave a key, and what it writes
_COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


@dataclass
class Tab:
    """A page in a browser."""

    send: int
    receive: int
    session: str = ""
    events: list[Message] = field(default_factory=list)
    _rest: bytes = b""
    _calls: int = 0

    def call(self, method: str, **parameters: Any) -> Message:
        """Call a method of the protocol and return its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.send, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._calls:
            self.events.append(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def open(self, page: Path, width: int, dark: bool = False, media: str = "screen") -> None:
        """Show a page in a width of CSS pixels."""
        self.events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page, or what it promises, as the browser's own tools compute it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def key(self, name: str) -> None:
        """Press and release a key."""
        number, text = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, text=text, windowsVirtualKeyCode=number)

    def picture(self, file: Path) -> None:
        """Write what the whole page looks like, as PNG."""
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shown["data"]))

    def printed(self) -> bytes:
        """Return the page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    @property
    def complaints(self) -> list[Message]:
        """Errors and messages on the console."""
        return [event for event in self.events if event.get("method") in _COMPLAINTS]

    def _next(self) -> Message:
        while b"\0" not in self._rest:
            content = os.read(self.receive, 1 << 20)
            assert content, "the browser has ended"
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """Start a browser that keeps its files in a folder, and end it."""
    (input_, send), (receive, output) = os.pipe(), os.pipe()

    def connect() -> None:  # the protocol's pipes are the descriptors 3 and 4
        os.dup2(os.dup(input_), 3)
        os.dup2(os.dup(output), 4)

    words = ["chromium", *_WORDS, f"--user-data-dir={folder}", "about:blank"]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(words, close_fds=False, preexec_fn=connect, stdout=nowhere, stderr=nowhere) as process:
        os.close(input_)
        os.close(output)
        tab = Tab(send, receive)
        target = tab.call("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Network", "Runtime"):
            tab.call(f"{domain}.enable")
        try:
            yield tab
        finally:
            process.kill()
            os.close(send)
            os.close(receive)
