"""A page in Chromium, driven by keys: what a test does with it, a person can. Needs websocket-client, which
JupyterLab brings.
"""

import contextlib
import itertools
import json
import re
import subprocess

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
KEYS = {"Enter": "\r", "Escape": "", "ArrowDown": "", "ArrowUp": "", "Tab": ""}


class Page:
    """One page of a browser."""

    def __init__(self, socket):
        self.socket, self.numbers = socket, itertools.count(1)

    def order(self, method, **given):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            said = json.loads(self.socket.recv())
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def ask(self, expression):
        """The value of an expression of JavaScript; a promise is waited for."""
        found = self.order("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition):
        """Wait until an expression is true: as long as it takes, at most the socket's limit."""
        self.ask(
            "new Promise(done => { const look = () => ("
            + condition
            + ") ? done() : requestAnimationFrame(look);"
            " look(); })"
        )

    def press(self, *keys):
        """Keys by name, one after the other."""
        for key in keys:
            text = KEYS.get(key, key)
            about = {
                "key": key,
                "code": key,
                "windowsVirtualKeyCode": {"Enter": 13, "Escape": 27}.get(key, 0),
            }
            self.order("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, text=text)
            self.order("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text):
        self.order("Input.insertText", text=text)

    def open(self, address):
        self.order("Page.enable")
        self.order("Page.navigate", url=address)
        self.until(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")


@contextlib.contextmanager
def page(program, folder):
    """A `Page` of a Chromium of its own, which ends with it."""
    import websocket

    command = [program, *OPTIONS, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            address = next(filter(None, (re.search(r"ws://\S+", line) for line in process.stderr)))[0]
            port = re.search(r":(\d+)/", address)[1]
            socket = websocket.create_connection(address, timeout=60, suppress_origin=True)
            made = Page(socket).order("Target.createTarget", url="about:blank")["targetId"]
            mine = websocket.create_connection(
                f"ws://127.0.0.1:{port}/devtools/page/{made}", timeout=60, suppress_origin=True
            )
            yield Page(mine)
        finally:
            process.kill()
            process.stderr.close()
