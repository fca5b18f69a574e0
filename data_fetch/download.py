"""One file over http into one local file, with the failures of real networks told apart.

`Downloader` follows pooch's protocol, a callable (url, output_file, pooch). A connection that broke after
it brought something new is taken up again where it stopped (an http range request); one that
brought nothing is not tried twice, so that "offline" is said at once. A server that accepts the
connection and then sends nothing, or a byte now and then, is given up after `timeout` seconds.
"""

import os
import time

from .errors import FetchError

CHUNK = 1 << 16
MAX_TRIES = 5
SLOWEST = 200  # bytes per second, averaged over `timeout` seconds, below which a server counts as stalled


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
        try:
            with requests.get(url, headers=headers, stream=True, timeout=self.timeout) as response:
                self._check(response, have)
                if have and response.status_code != 206:  # the server starts again, so do we
                    out.seek(0)
                    out.truncate()
                self._copy(response.raw, out)
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError):
            raise _Interrupted(f"the server stalled for {self.timeout:g} seconds") from None
        except requests.exceptions.SSLError as error:
            raise FetchError(f"the server's certificate is not trusted ({_innermost(error)})") from None
        except requests.exceptions.ConnectionError as error:
            raise _Interrupted(f"no connection (offline? {_innermost(error)})") from None
        except (urllib3.exceptions.HTTPError, requests.exceptions.RequestException) as error:
            raise _Interrupted(f"the connection broke ({_innermost(error)})") from None

    def _check(self, response, have):
        status = response.status_code
        if status == 206 and have:
            start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
            if start != str(have):
                raise FetchError(f"the server resumed at byte {start or '?'} instead of {have}")
        elif status in (429, 500, 502, 503, 504):
            raise _Interrupted(f"the server answered {status} {response.reason}")
        elif status != 200:
            raise FetchError(f"the server answered {status} {response.reason}")
        else:
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and int(length) != self.n_bytes:
                raise FetchError(f"the server offers {length} bytes where {self.n_bytes} were expected")

    def _copy(self, raw, out):
        """Move the body chunk by chunk; sizes and pace are watched while it flows."""
        # read1 returns what is there, so that a trickle is seen as one
        read = getattr(raw, "read1", raw.read)
        window_start, window_bytes = time.monotonic(), 0
        while chunk := read(CHUNK):
            out.write(chunk)
            got = out.tell()
            if got > self.n_bytes:
                raise FetchError(f"the server sent more than the {self.n_bytes} bytes expected")
            self.progress(got)
            window_bytes += len(chunk)
            elapsed = time.monotonic() - window_start
            if elapsed > self.timeout:
                if window_bytes < SLOWEST * elapsed:
                    raise _Interrupted(f"the server stalled: {window_bytes} bytes in {elapsed:.0f} seconds")
                window_start, window_bytes = time.monotonic(), 0
        if out.tell() < self.n_bytes:
            raise _Interrupted("the body was cut short")


def _innermost(error):
    """The cause at the bottom of requests' and urllib3's nested exceptions, in few words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror
    return str(error).split("\n")[0] or type(error).__name__
