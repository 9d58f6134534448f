"""A headless Chromium, driven over a pipe by its own protocol: no packages, no ports."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    """Where a Chromium is, None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


_WITH_PIPES = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(name), fcntl.F_DUPFD, 10) for name in sys.argv[1:3]]  # none of them is 3 or 4 itself
for place, pipe in zip((3, 4), pipes):
    os.dup2(pipe, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from its file 3 and answers in its file 4."""


class Browser:
    """One page of one browser; ``complaints`` are what its console, its scripts and its loader said."""

    def __init__(self, profile: Path, seconds: float = 60.0) -> None:
        """Start it with an empty profile; every wait ends after ``seconds``."""
        path = executable()
        if path is None:
            raise FileNotFoundError(f"expected one of {', '.join(NAMES)}, found none")
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._seconds = seconds
        self._number = 0
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WITH_PIPES, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session: str | None = None
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        with contextlib.suppress(OSError, TimeoutError, subprocess.TimeoutExpired):
            self.call("Browser.close")
            self._process.wait(10)
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._heard(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + self._seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError(f"expected an answer of the browser within {self._seconds} s, got none")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _heard(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:200])

    def open(self, path: Path) -> None:
        """Load a file and wait until it is loaded."""
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._heard(self._next())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screen(self, width: int, height: int, *, mobile: bool = False, dark: bool = False) -> None:
        """Size of the screen, and the scheme that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """A screenshot, png."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
