"""One file over http into one local file, with the failures of real networks told apart.

`Downloader` follows pooch's protocol, a callable (url, output_file, pooch). A connection that broke after
it brought something new is taken up again where it stopped (an http range request); one that
brought nothing is not tried twice, so that "offline" is said at once.

Nothing lasts for ever. Connecting, redirects and headers have `timeout` seconds together, whatever comes in
them, and however many addresses a host name stands for; a TLS handshake belongs to connecting. From then on
every `timeout` seconds must bring SLOWEST * `timeout` bytes of the body, or its end; what frames the body
(sizes of chunks) does not count. Only looking up a host name takes the time that the system gives to it.
"""

import io
import os
import time
from urllib.parse import urljoin, urlsplit

from .errors import FetchError

CHUNK = 1 << 13
MAX_TRIES = 5
MAX_REDIRECTS = 10
SLOWEST = 200  # bytes of the body per second, below which a server counts as stalled
LONGEST = 80  # characters of what a server said that a message repeats


class _Interrupted(Exception):
    """The transfer stopped early; str() says why. What has arrived so far is good."""


class Downloader:
    """Callable (url, output_file, pooch=None) that writes exactly `n_bytes` bytes or raises.

    Parameters: n_bytes, the size to expect; timeout, seconds without progress after which to give up;
    progress, None or a callable that is told the number of bytes on disk after every chunk.
    Raises FetchError (network, server, size) or OSError (the disk).
    """

    def __init__(self, n_bytes, *, timeout=30.0, progress=None):
        self.n_bytes = n_bytes
        self.timeout = timeout
        self.progress = progress or (lambda n: None)

    def __call__(self, url, output_file, pooch=None):
        have = 0
        with open(output_file, "wb") as out:
            for attempt in range(1, MAX_TRIES + 1):
                try:
                    self._transfer(url, out)
                    return
                except _Interrupted as why:
                    got = out.tell()
                    if got == self.n_bytes:  # broke after the last byte
                        return
                    if got == have or attempt == MAX_TRIES:
                        after = f", after {got} of {self.n_bytes} bytes" if got else ""
                        raise FetchError(f"{why}{after}") from None
                    have = got
                    time.sleep(min(0.1 * 2**attempt, self.timeout))

    def _transfer(self, url, out):
        """Append to `out` what is missing; _Interrupted if it may be worth another try."""
        import requests
        import urllib3

        have = out.tell()
        headers = {"Accept-Encoding": "identity", "User-Agent": "data_fetch"}
        if have:
            headers["Range"] = f"bytes={have}-"
        deadline = _Deadline(self.timeout)
        try:
            with _session(deadline) as session, _answer(session, url, headers, deadline) as response:
                self._check(response, have)
                if have and response.status_code != 206:  # the server starts again, so do we
                    out.seek(0)
                    out.truncate()
                self._copy(response.raw, out, deadline)
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):
            raise _Interrupted(f"the server stalled for {self.timeout:g} seconds") from None
        except requests.exceptions.SSLError as error:
            raise FetchError(f"the server's certificate is not trusted ({_innermost(error)})") from None
        except requests.exceptions.ConnectionError as error:
            raise _Interrupted(f"no connection (offline? {_innermost(error)})") from None
        except ValueError as error:  # pooch would take it for a wrong hash
            raise FetchError(f"the address or the answer makes no sense ({_innermost(error)})") from None
        except (urllib3.exceptions.HTTPError, requests.exceptions.RequestException) as error:
            raise _Interrupted(f"the connection broke ({_innermost(error)})") from None

    def _check(self, response, have):
        status = response.status_code
        if status == 206 and have:
            start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
            if start != str(have):
                raise FetchError(f"the server resumed at byte {_cut(start) or '?'} instead of {have}")
        elif status in (429, 500, 502, 503, 504):
            raise _Interrupted(f"the server answered {status} {_cut(response.reason)}")
        elif status != 200:
            raise FetchError(f"the server answered {status} {_cut(response.reason)}")
        else:
            length = response.headers.get("Content-Length", "")
            if length.isdecimal() and length.lstrip("0") != str(self.n_bytes):
                raise FetchError(f"the server offers {_cut(length)} bytes where {self.n_bytes} were expected")

    def _copy(self, raw, out, deadline):
        """Move the body chunk by chunk; its size is watched, and what arrives moves the deadline."""
        # read1 returns what is there, so that progress is seen in time
        read = getattr(raw, "read1", raw.read)
        deadline.renew()
        window_bytes = 0
        while chunk := read(CHUNK):
            out.write(chunk)
            got = out.tell()
            if got > self.n_bytes:
                raise FetchError(f"the server sent more than the {self.n_bytes} bytes expected")
            self.progress(got)
            window_bytes += len(chunk)
            if window_bytes >= SLOWEST * self.timeout:
                deadline.renew()
                window_bytes = 0
        if out.tell() < self.n_bytes:
            raise _Interrupted("the body was cut short")


class _Deadline:
    """`seconds` from the last renewal; `left()` raises TimeoutError once they are over."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.renew()

    def renew(self):
        self.end = time.monotonic() + self.seconds

    def left(self):
        if (left := self.end - time.monotonic()) <= 0:
            raise TimeoutError
        return left


class _Timed(io.RawIOBase):
    """What a socket sends. Its own timeout begins anew with every byte; here a read has what is left."""

    def __init__(self, stream, sock, deadline):
        self.stream, self.sock, self.deadline = stream, sock, deadline

    def readable(self):
        return True

    def readinto(self, buffer):
        self.sock.settimeout(self.deadline.left())
        return self.stream.readinto(buffer)

    def close(self):
        self.stream.close()
        super().close()


def _session(deadline):
    """A session of requests that connects and reads under `deadline` and leaves redirects to us."""
    import http.client
    import socket

    import requests
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
    from urllib3.util.connection import allowed_gai_family

    def timed_response(sock, *arguments, **options):
        response = http.client.HTTPResponse(sock, *arguments, **options)
        response.fp = io.BufferedReader(_Timed(response.fp.detach(), sock, deadline))
        return response

    def timed_connection(kind):
        class TimedConnection(kind):
            response_class = staticmethod(timed_response)

            def _new_conn(self):
                """A socket to the first address that answers. Each has an equal share of the time that is
                left: urllib3 would give all of it to each.
                """
                name, error = self._dns_host, OSError("the host name stands for no address")
                found = socket.getaddrinfo(
                    name.strip("[]"), self.port, allowed_gai_family(), socket.SOCK_STREAM
                )
                try:
                    for i, (*_, address) in enumerate(found):
                        self._dns_host, self.timeout = address[0], deadline.left() / (len(found) - i)
                        try:
                            sock = super()._new_conn()
                        except (ConnectTimeoutError, NewConnectionError) as one:
                            error = one
                        else:
                            sock.settimeout(deadline.left())  # the TLS handshake has what is left
                            return sock
                    raise error
                except TimeoutError:
                    raise ConnectTimeoutError(self, "no time is left") from None
                finally:
                    self._dns_host = name

            def _tunnel(self):
                super()._tunnel()
                self.sock.settimeout(deadline.left())

        return TimedConnection

    def timed(manager):
        """Connections of `manager`, a pool manager of urllib3, keep to the deadline."""
        for scheme, pool in (classes := dict(manager.pool_classes_by_scheme)).items():
            made = {"ConnectionCls": timed_connection(pool.ConnectionCls)}
            classes[scheme] = type("TimedPool", (pool,), made)
        manager.pool_classes_by_scheme = classes
        return manager

    class Adapter(requests.adapters.HTTPAdapter):
        def init_poolmanager(self, *arguments, **options):
            super().init_poolmanager(*arguments, **options)
            timed(self.poolmanager)

        def proxy_manager_for(self, proxy, **options):
            return timed(super().proxy_manager_for(proxy, **options))

    class Session(requests.Session):
        def get_redirect_target(self, response):
            return None  # requests would first read the body of the redirect, however long, into memory

    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session


def _answer(session, url, headers, deadline):
    """The response at the end of all redirects, its body unread."""
    for _ in range(MAX_REDIRECTS):
        response = session.get(url, headers=headers, stream=True, timeout=deadline.left())
        if not response.is_redirect:
            return response
        response.close()
        url = _target(url, response.headers["location"])
    raise FetchError(f"the server redirects more than {MAX_REDIRECTS} times")


def _target(url, location):
    """Where a redirect from `url` leads; FetchError if that is no address to ask."""
    location = location.encode("latin-1").decode(
        "utf-8", "replace"
    )  # http.client reads latin-1, servers send utf-8
    try:
        parts = urlsplit(target := urljoin(url, location))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return target
    except ValueError:
        pass
    raise FetchError(f"the server redirects to {_cut(location)!r}, which is not an http address")


def _cut(text):
    """What a server said, at most LONGEST characters of it."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _innermost(error):
    """The cause at the bottom of requests' and urllib3's nested exceptions, in few words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror
    return _cut(str(error).split("\n")[0]) or type(error).__name__
