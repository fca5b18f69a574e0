"""A real http server on this machine whose manners can be chosen: every way in which a download goes wrong.

Test modules load the fixtures with ``pytest_plugins = "helpers.local_server"``. (PYTEST_DONT_REWRITE:
they may import it first.)
"""

import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote_to_bytes

import pytest

import data_fetch
from data_fetch import store

BODY = bytes(range(256)) * 2000  # 512,000 bytes: several chunks


class Server:
    """Serves BODY under any address; the first part of the path says how it behaves.
    Remembers the requests.
    """

    def __init__(self):
        outer = self
        self.requests, self.release = [], threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def send(self, body, status=200, length=None, **headers):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                for key, value in headers.items():
                    self.send_header(key.replace("_", "-"), value)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass  # the client has seen enough

            def drip(self, lead, n=60):
                """Bytes that say nothing, one at a time: each is in time, all of them are not."""
                self.wfile.write(lead)
                for _ in range(n):
                    outer.release.wait(0.05)
                    self.wfile.write(b"x")
                self.wfile.write(b"\r\n")

            def do_GET(self):
                manner = self.path.split("/")[1]
                outer.requests.append((manner, self.headers.get("Range")))
                n_before = sum(m == manner for m, _ in outer.requests) - 1
                start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
                ranged = {"Content_Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"}
                if manner == "good":
                    self.send(BODY)
                elif manner == "missing":
                    self.send(b"no such thing", 404)
                elif manner == "wrong":
                    self.send(BODY[:-1] + b"!")
                elif manner == "login":
                    self.send(b"<html>please pay for this network</html>")
                elif manner == "endless":
                    self.send_response(200)
                    self.end_headers()
                    try:
                        while not outer.release.is_set():
                            self.wfile.write(BODY)
                    except OSError:
                        pass
                elif manner == "cut":  # always the same first part, resuming not supported
                    self.send(BODY[:100_000], length=len(BODY))
                elif manner == "cut-then-range":  # breaks twice, resumes where asked
                    part = BODY[start : start + 200_000] if n_before < 2 else BODY[start:]
                    self.send(
                        part, 206 if start else 200, length=len(BODY) - start, **(ranged if start else {})
                    )
                elif manner == "cut-then-whole":  # breaks once, then starts again from the first byte
                    self.send(BODY[:200_000] if n_before == 0 else BODY, length=len(BODY))
                elif manner == "cut-then-elsewhere":  # answers a range request with another range
                    ranged["Content_Range"] = f"bytes 7-{len(BODY) - 1}/{len(BODY)}"
                    self.send(
                        BODY[:200_000], 206 if start else 200, length=len(BODY), **(ranged if start else {})
                    )
                elif manner == "stall":
                    outer.release.wait(20)
                elif manner == "stall-midway":
                    self.send(BODY[:100_000], length=len(BODY))
                    outer.release.wait(20)
                elif manner == "trickle":
                    self.send(b"", length=len(BODY))
                    try:
                        while not outer.release.wait(0.05):
                            self.wfile.write(b"x")
                    except OSError:
                        pass
                elif manner == "drip-headers":
                    self.drip(b"HTTP/1.0 200 OK\r\nX-Drip: ")
                    self.wfile.write(b"\r\n" + BODY)
                elif manner == "drip-chunks":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    self.drip(f"{len(BODY):x};".encode())
                    self.wfile.write(BODY + b"\r\n0\r\n\r\n")
                elif manner == "hops":  # /hops/8 leads to /hops/7, each after a while
                    n_left = int(self.path.split("/")[2])
                    outer.release.wait(0.3)
                    self.send(b"", 302, Location=f"/hops/{n_left - 1}") if n_left else self.send(BODY)
                elif manner == "redirect":  # to what the rest of the path says, percent-encoded
                    location = unquote_to_bytes(self.path.split("/", 2)[2]).decode("latin-1")
                    self.send(b"", 302, Location=location)
                elif manner == "redirect-stalls":  # announces a body, which the client does not need
                    self.send(b"", 302, length=9, Location="/good")
                    outer.release.wait(60)
                elif manner == "says":  # a status and a reason phrase, percent-encoded
                    status, reason = self.path.split("/")[2:4]
                    self.wfile.write(f"HTTP/1.0 {status} ".encode() + unquote_to_bytes(reason) + b"\r\n\r\n")
                elif manner == "length":  # any Content-Length
                    self.send(BODY, length=unquote_to_bytes(self.path.split("/")[2]).decode("latin-1"))
                elif manner == "sorry-then-good":
                    self.send(b"busy", 503) if n_before == 0 else self.send(BODY)
                else:
                    raise AssertionError(manner)

            def handle(self):
                with suppress(OSError):  # the client has hung up
                    super().handle()

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.httpd.block_on_close = False
        self.address = f"http://127.0.0.1:{self.httpd.server_port}"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.release.set()
        self.httpd.shutdown()
        self.httpd.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, no mirror, no proxies."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CRFBOOK_DATA", str(folder))
    monkeypatch.delenv("CRFBOOK_MIRROR", raising=False)
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "127.0.0.1")
    store._whole.clear()
    return folder


def entry(url, body=BODY):
    return {"url": url, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


@pytest.fixture
def register(monkeypatch):
    """register(url) makes a data set "toy" of one file toy.bin; register(a=url,
    b=url) one of files a and b.
    """

    def add(url=None, **urls):
        files = {name: entry(u) for name, u in (urls or {"toy.bin": url}).items()}
        toy = {"task": "Toy", "licence": "none needed", "reference": "", "files": files}
        monkeypatch.setitem(data_fetch.REGISTRY, "toy", toy)

    return add
