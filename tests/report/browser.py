"""A page in headless Chromium, driven through its debugging pipe with nothing but the standard library."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Chromium and one page in it. What the page logs and asks for is in ``messages`` and ``requests``."""

    def __init__(self, profile, timeout=60):
        self.timeout = timeout
        self.messages, self.requests, self._events, self._next, self._buffer = [], [], [], 0, b""
        # Above the numbers that the browser wants, so that one cannot take the place of the other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (*os.pipe(), *os.pipe())]
        to_read, self._write, self._read, to_write = ends

        def place():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [find_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Send a command and wait for its result."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            got = self._receive(deadline)
            if got.get("id") == self._next:
                assert "error" not in got, got
                return got["result"]
            self._notice(got)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        head, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(head)

    def _notice(self, event):
        self._events.append(event)
        method, what = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(str(what["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(what["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(what["entry"]["text"])

    def open(self, path, *, width=1280, height=900, dark=False, mobile=False):
        """Load a file and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.messages.clear()
        self.requests.clear()
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + self.timeout
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._notice(self._receive(deadline))

    def run(self, script):
        """Value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def screenshot(self, path, *, full=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def point_at(self, selector, across=0.5, down=0.5):
        """Move the pointer over an element."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        # Scrolling, which hides what is shown under the pointer, is told to the page with the next frame.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        box = self.run(
            f"(() => {{const b = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]})()"
        )
        x, y = box[0] + across * box[2], box[1] + down * box[3]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """Press a key on whatever has the focus."""
        codes = {"Space": (" ", 32), "Tab": ("Tab", 9), "Enter": ("Enter", 13)}
        name, code = codes[key]
        text = {"text": "\r" if key == "Enter" else name} if key != "Tab" else {}
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def close(self):
        try:
            self._session = None
            self.call("Browser.close")
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait(10)
        os.close(self._write)
        os.close(self._read)
