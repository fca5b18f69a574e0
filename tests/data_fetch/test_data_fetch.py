"""data_fetch against a real http server on this machine: what goes well,
and every way in which it does not.
"""

import hashlib
import os
import socket
import ssl
import subprocess
import sys
import warnings
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers.local_server import BODY, entry

import data_fetch
from data_fetch import FetchError, download
from data_fetch.__main__ import main
from data_fetch.download import Downloader

ROOT = Path(__file__).resolve().parents[2]

pytest_plugins = "helpers.local_server"


def leftovers(cache):
    """Files in the cache, whatever their names."""
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*")) if cache.exists() else []


def fails(timeout=5.0):
    """The message of the FetchError that fetching the toy must raise: one line."""
    with pytest.raises(FetchError) as caught:
        data_fetch.fetch("toy", timeout=timeout)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What goes well


def test_fetch_puts_a_checked_file_into_the_cache_once(server, cache, register, capfd):
    register(f"{server.address}/good")
    assert data_fetch.locate("toy", "toy.bin") is None
    assert data_fetch.fetch("toy") == {"toy.bin": cache / "toy" / "toy.bin"}
    assert (cache / "toy" / "toy.bin").read_bytes() == BODY
    assert data_fetch.locate("toy", "toy.bin") == cache / "toy" / "toy.bin"
    assert (cache / "toy" / "toy.bin").stat().st_mode & 0o444 == 0o444, "a shared cache must be readable"
    data_fetch.fetch("toy")
    assert len(server.requests) == 1
    assert leftovers(cache) == ["toy", "toy/toy.bin"]
    assert capfd.readouterr() == ("", ""), "quiet, or it would stand in the notebooks"


def test_progress_bar_on_request(server, cache, register, capfd):
    register(a=f"{server.address}/good", b=f"{server.address}/good")
    data_fetch.fetch("toy", progressbar=True)
    assert "100%" in capfd.readouterr().err


def test_a_damaged_file_is_passed_over_with_a_warning_and_replaced(server, cache, register):
    register(f"{server.address}/good")
    path = data_fetch.fetch("toy")["toy.bin"]
    path.write_bytes(BODY[:-1] + b"!")  # same size: only the hash tells
    os.utime(path, ns=(0, 12345))
    with pytest.warns(UserWarning, match="damaged"):
        assert data_fetch.locate("toy", "toy.bin") is None
    assert [row.state for row in data_fetch.verify(["toy"])] == ["damaged"]
    assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY
    assert [row.state for row in data_fetch.verify(["toy"])] == ["ok"]


def test_a_file_is_hashed_once_per_process_but_verify_hashes_anew(server, cache, register, monkeypatch):
    register(f"{server.address}/good")
    path = data_fetch.fetch("toy")["toy.bin"]
    data_fetch.locate("toy", "toy.bin")
    calls = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: calls.append(a) or digest(*a))
    data_fetch.locate("toy", "toy.bin")
    assert not calls
    stat = path.stat()
    path.write_bytes(BODY[:-1] + b"!")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a change that size and time do not show
    assert data_fetch.locate("toy", "toy.bin") == path
    assert [row.state for row in data_fetch.verify(["toy"])] == ["damaged"]


# What does not go well on the network


def test_404(server, cache, register):
    register(f"{server.address}/missing")
    assert "404" in fails()
    assert leftovers(cache) == ["toy"]


def test_wrong_hash(server, cache, register):
    register(f"{server.address}/wrong")
    assert "sha256" in fails()
    assert leftovers(cache) == ["toy"]


def test_wrong_hash_keeps_the_file_that_was_there(server, cache, register):
    register(f"{server.address}/wrong")
    (cache / "toy").mkdir(parents=True)
    (cache / "toy" / "toy.bin").write_bytes(b"an older copy")
    fails()
    assert (cache / "toy" / "toy.bin").read_bytes() == b"an older copy"


def test_a_login_page_is_refused_by_its_size(server, cache, register):
    register(f"{server.address}/login")
    assert "40 bytes where 512000 were expected" in fails()


def test_a_server_that_never_stops_is_cut_off(server, cache, register):
    register(f"{server.address}/endless")
    assert "more than the 512000 bytes" in fails()
    assert leftovers(cache) == ["toy"]


def test_truncated_body(server, cache, register):
    register(f"{server.address}/cut")
    assert "after 100000 of 512000 bytes" in fails()
    assert leftovers(cache) == ["toy"]
    assert len(server.requests) == 2, "one more try after some bytes came, none after no new ones did"


def test_a_broken_transfer_is_resumed_where_it_stopped(server, cache, register):
    register(f"{server.address}/cut-then-range")
    assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY
    assert [start for _, start in server.requests] == [None, "bytes=200000-", "bytes=400000-"]


def test_a_server_without_ranges_starts_again(server, cache, register):
    register(f"{server.address}/cut-then-whole")
    assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY


def test_a_server_that_resumes_elsewhere_is_refused(server, cache, register):
    register(f"{server.address}/cut-then-elsewhere")
    assert "resumed at byte 7 instead of 200000" in fails()


@pytest.mark.parametrize("manner", ["stall", "stall-midway", "trickle"])
def test_a_stalled_server_is_given_up(server, cache, register, manner):
    register(f"{server.address}/{manner}")
    assert "stalled for 0.3 seconds" in fails(timeout=0.3)
    assert leftovers(cache) == ["toy"]


@pytest.mark.parametrize("manner", ["drip-headers", "drip-chunks", "hops/8"])
def test_one_deadline_holds_for_all_that_is_not_the_body(server, cache, register, manner):
    """Every byte comes within the timeout; without a deadline each of these ends well, after seconds."""
    register(f"{server.address}/{manner}")
    assert "stalled for 1 seconds" in fails(timeout=1)
    assert leftovers(cache) == ["toy"]


@pytest.fixture
def patience(monkeypatch):
    """Seconds that each attempt to connect, and each TLS handshake, may wait; they pass on a clock of ours.
    Nobody answers at addresses of 198.51.100.0/24, and localhost takes a second.
    """
    clock, granted = [0.0], []

    class Socket(socket.socket):
        def connect(self, address):
            granted.append(self.gettimeout())
            clock[0] += 1.0 if address[0] == "127.0.0.1" else granted[-1]
            if address[0] != "127.0.0.1":
                raise TimeoutError
            super().connect(address)

    def handshake(context, sock, **options):
        granted.append(sock.gettimeout())
        raise TimeoutError

    monkeypatch.setattr(download.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", handshake)
    return granted


def stands_for(monkeypatch, *addresses):
    """Any host name stands for these addresses."""

    def look_up(host, port, *kind, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_all_addresses_of_a_host_have_one_deadline(server, cache, register, monkeypatch, patience):
    silent = [f"198.51.100.{i}" for i in range(9)]
    stands_for(monkeypatch, *silent)
    register(server.address.replace("127.0.0.1", "a.test") + "/good")
    assert "stalled for 100 seconds" in fails(timeout=100)
    assert len(patience) == 9 and sum(patience) == pytest.approx(100)
    stands_for(monkeypatch, *silent, "127.0.0.1")
    data_fetch.fetch("toy", timeout=100)
    assert patience[9:] == pytest.approx([10.0] * 10), "the last one answers, and has its share"


def test_the_handshake_has_what_connecting_left(server, cache, register, monkeypatch, patience):
    stands_for(monkeypatch, "198.51.100.1", "127.0.0.1")
    register(server.address.replace("http://127.0.0.1", "https://a.test") + "/good")
    assert "stalled for 100 seconds" in fails(timeout=100)
    assert patience == pytest.approx([50.0, 50.0, 49.0])


def test_the_body_moves_the_deadline(server, cache, register, monkeypatch):
    """A window of time ends as soon as it has brought its share: long bodies have the time they need."""
    renewals = []
    renew = download._Deadline.renew
    monkeypatch.setattr(download._Deadline, "renew", lambda self: renewals.append(1) or renew(self))
    register(f"{server.address}/good")
    data_fetch.fetch("toy", timeout=100.0)
    share = download.SLOWEST * 100
    assert 2 + len(BODY) // (share + download.CHUNK) <= len(renewals) <= 2 + len(BODY) // share


@pytest.mark.parametrize("manner", ["redirect/%2Fgood", "redirect-stalls", "hops/2"])
def test_redirects_are_followed_and_their_bodies_left_unread(server, cache, register, manner):
    register(f"{server.address}/{manner}")
    assert data_fetch.fetch("toy", timeout=20)["toy.bin"].read_bytes() == BODY


@pytest.mark.parametrize(
    "location",
    ["http://[", "https:///x", "http://:80/", "http://127.0.0.1:99999/", "http://127.0.0.1:x/", "file:///etc/hosts",
     "ftp://127.0.0.1/x", "//[::1", "http://%ff[", "http://\x1b[2J[", "javascript:" + "x" * 9999],
)  # fmt: skip
def test_a_redirect_that_leads_nowhere_is_called_one(server, cache, register, location):
    register(f"{server.address}/redirect/{quote(location, safe='')}")
    said = fails().split("the server redirects to '")[1]
    assert said.isprintable() and said.endswith("', which is not an http address") and len(said) < 150


@pytest.mark.parametrize("host", ["a..b", "x" * 99 + ".y", "%00", "127.0.0.1 ", "*"])
def test_a_redirect_to_a_host_that_cannot_be_asked(server, cache, register, host):
    register(f"{server.address}/redirect/{quote(f'http://{host}:9/', safe='')}")
    message = fails()
    assert "sha256" not in message and message.isprintable()


def test_redirects_in_a_circle(server, cache, register):
    register(f"{server.address}/redirect/{quote('?again', safe='')}")
    assert "redirects more than 10 times" in fails()


@pytest.mark.parametrize("status", [404, 503])
def test_what_a_server_says_is_shown_without_control_characters(server, cache, register, status, capsys):
    register(f"{server.address}/says/{status}/%1B]0;owned%07%9B2Jlook%E2%80%AE{'long' * 9999}")
    server_says = fails().split(f"answered {status} ")[1]
    assert server_says.startswith("?]0;owned??2Jlook") and server_says.endswith("...")
    assert server_says.isprintable() and len(server_says) < 100
    assert main(["toy"]) == 1
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("length", ["9" * 5000, "²", "007", "-1"])
def test_a_length_that_is_none(server, cache, register, length):
    """Python refuses to read 5,000 digits as a number: that is no wrong hash."""
    register(f"{server.address}/length/{quote(length, encoding='latin-1')}")
    try:
        assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY
    except FetchError as error:
        assert "sha256" not in str(error) and len(str(error)) < 300 + 3 * len(length)


def test_an_address_that_makes_no_sense(cache, register):
    register("http://[")
    assert "the address or the answer makes no sense" in fails()


def test_offline(cache, register):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        register(f"http://127.0.0.1:{free.getsockname()[1]}/toy.bin")
        assert "no connection (offline?" in fails()  # it does not listen


def test_second_fetch_after_a_failure_takes_only_what_is_missing(server, cache, register):
    register(a=f"{server.address}/good", b=f"{server.address}/sorry-then-good")
    assert "503" in fails()
    assert leftovers(cache) == ["toy", "toy/a"]
    assert sorted(data_fetch.fetch("toy")) == ["a", "b"]
    assert [manner for manner, _ in server.requests] == ["good", "sorry-then-good", "sorry-then-good"]


# What does not go well on the disk


def test_a_cache_folder_that_cannot_be_written(server, cache, register, monkeypatch):
    register(f"{server.address}/good")
    cache.write_text("a file where the folder should be")  # holds for root too, whom permissions do not stop
    message = fails()
    assert "CRFBOOK_DATA" in message and str(cache) in message
    assert not server.requests, "nothing is downloaded that could not be kept"


@pytest.mark.parametrize("variable", ["CRFBOOK_DATA", "CRFBOOK_MIRROR"])
@pytest.mark.parametrize("place", ["/a\0b" + "c" * 999, "~nobody-of-this-name/x"])
def test_a_folder_that_no_folder_can_be_called(cache, register, monkeypatch, capsys, variable, place):
    register("http://127.0.0.1:9/never-asked")
    monkeypatch.setattr(os, "environ", dict(os.environ) | {variable: place})  # os.environ itself refuses NUL
    for act in (lambda: data_fetch.locate("toy", "toy.bin"), lambda: data_fetch.fetch("toy")):
        with pytest.raises(FetchError, match=f"{variable}: expected the path of a folder, got '") as caught:
            act()
        assert len(str(caught.value)) < 250
    for command in ("toy", "list"):
        assert main([command]) == 1
        assert variable in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits there")
def test_a_full_disk(server, cache):
    code = f"""
import resource, signal, data_fetch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
data_fetch.REGISTRY["toy"] = {{"files": {{"toy.bin": {entry(server.address + "/good")!r}}}}}
data_fetch.fetch("toy")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "FetchError: the disk is full" in done.stderr.splitlines()[-1]
    assert leftovers(cache) == ["toy"]


def test_two_processes_at_once(server, cache):
    files = {f"f{i}": entry(server.address + "/good") for i in range(25)}
    code = f"""
import sys, data_fetch
data_fetch.REGISTRY["toy"] = {{"files": {files!r}}}
print("ready", flush=True); sys.stdin.readline()
data_fetch.fetch("toy")
"""
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    while any(process.poll() is None for process in both):
        for path in (cache / "toy").glob("f*"):
            assert path.read_bytes() == BODY, "a file under its final name must be whole at every moment"
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert leftovers(cache) == ["toy", *sorted(f"toy/{name}" for name in files)]
    assert len(server.requests) > len(files), "the two did get in each other's way"


# Mirrors


def test_mirror_folder(cache, register, tmp_path, monkeypatch):
    register("http://127.0.0.1:9/never-asked")
    mirrored = tmp_path / "mirror" / "toy" / "toy.bin"
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(BODY)
    monkeypatch.setenv("CRFBOOK_MIRROR", str(tmp_path / "mirror"))
    assert data_fetch.locate("toy", "toy.bin") == mirrored
    assert leftovers(cache) == []
    assert data_fetch.fetch("toy")["toy.bin"] == cache / "toy" / "toy.bin"
    assert data_fetch.locate("toy", "toy.bin") == cache / "toy" / "toy.bin"


def test_mirror_http(server, cache, register, monkeypatch):
    register("http://127.0.0.1:9/never-asked")
    monkeypatch.setenv("CRFBOOK_MIRROR", f"{server.address}/good/")
    assert data_fetch.locate("toy", "toy.bin") is None, "locate never touches the network"
    assert not server.requests
    assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY


@pytest.mark.parametrize("content", [None, BODY[:-1] + b"!", b"short"])
def test_a_bad_mirror_is_passed_by(server, cache, register, tmp_path, monkeypatch, content):
    register(f"{server.address}/good")
    (tmp_path / "mirror" / "toy").mkdir(parents=True)
    if content is not None:
        (tmp_path / "mirror" / "toy" / "toy.bin").write_bytes(content)
    monkeypatch.setenv("CRFBOOK_MIRROR", str(tmp_path / "mirror"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert data_fetch.locate("toy", "toy.bin") is None
    assert data_fetch.fetch("toy")["toy.bin"].read_bytes() == BODY


def test_when_mirror_and_source_fail_both_are_named(server, cache, register, monkeypatch):
    register(f"{server.address}/wrong")
    monkeypatch.setenv("CRFBOOK_MIRROR", f"{server.address}/missing")
    message = fails()
    assert f"{server.address}/missing/toy/toy.bin: the server answered 404" in message
    assert f"nor from {server.address}/wrong: wrong content" in message


def test_pooch_is_silent_in_a_notebook_without_widgets():
    """tqdm, which pooch imports, warns there; a stored chapter may hold nothing from stderr."""
    script = """
import sys, types
ipython = types.ModuleType("IPython")
ipython.get_ipython = lambda: None
sys.modules["IPython"], sys.modules["ipywidgets"] = ipython, None
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
from data_fetch import store
store.cache_dir()
assert "pooch" in sys.modules
"""
    environment = {k: v for k, v in os.environ.items() if k != "CRFBOOK_DATA"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_downloader_alone_reports_progress(server, tmp_path):
    seen = []
    Downloader(len(BODY), progress=seen.append)(f"{server.address}/good", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert seen == sorted(seen) and seen[-1] == len(BODY)
