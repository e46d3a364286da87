"""A headless Chromium, driven through its debugging pipe with the standard library alone.

with Chromium() as browser:
    page = browser.open("file:///tmp/report.html", width=420)
    page.evaluate("document.title")
    page.problems    # console errors, exceptions and requests for anything but the page
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds; a loaded machine starts Chromium slowly


def find_chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Chromium:
    def __enter__(self) -> Chromium:
        self.profile = tempfile.mkdtemp(prefix="octavo-chromium-")
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        command_read, self.command = os.pipe()
        self.answer, answer_write = os.pipe()

        def place() -> None:
            # Out of the way of 3 and 4 first.
            a, b = os.dup(command_read), os.dup(answer_write)
            a, b = os.dup2(a, 100), os.dup2(b, 101)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [
                find_chromium(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={self.profile}",
            ],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self.buffer = b""
        self.number = 0
        self.events: list[dict] = []
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.command)
        os.close(self.answer)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self) -> dict:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            if not select.select([self.answer], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            got = os.read(self.answer, 1 << 16)
            if not got:
                raise RuntimeError("Chromium has ended")
            self.buffer += got
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method: str, session: str | None = None, **arguments) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments}
        if session:
            message["sessionId"] = session
        os.write(self.command, json.dumps(message).encode() + b"\0")
        while True:
            got = self._message()
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def open(self, url: str, **look) -> Page:
        return Page(self, url, **look)


class Page:
    def __init__(
        self, browser: Chromium, url: str, width=1400, height=900, dark=False, script=True
    ):
        self.browser, self.url = browser, url
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        if not script:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        browser.events.clear()
        self.send("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in browser.events):
            browser.events.append(browser._message())

    def send(self, method: str, **arguments) -> dict:
        return self.browser.send(method, self.session, **arguments)

    def evaluate(self, expression: str):
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    @property
    def problems(self) -> list[str]:
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, detail = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(detail["exceptionDetails"]))
            if method == "Runtime.consoleAPICalled" and detail["type"] in ("error", "warning"):
                found.append(str(detail["args"]))
            if method == "Log.entryAdded" and detail["entry"]["level"] in ("error", "warning"):
                found.append(str(detail["entry"]))
            if method == "Network.requestWillBeSent":
                asked = detail["request"]["url"]
                if asked != self.url and not asked.startswith("data:"):
                    found.append(f"request: {asked}")
        return found

    def picture(self, path: str, whole: bool = True) -> None:
        got = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(got["data"]))
