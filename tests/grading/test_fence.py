"""The fence of namespaces, without the audit hook: what a submission tries, and what comes of it.

Each trick is seen to succeed without the fence, or says here why it is not tried without it.
"""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pytest

from tools.grading import run
from tools.grading.score import grade

ROOT = Path(__file__).resolve().parents[2]
SOLVED = str(next((ROOT / "notebooks" / "assignments" / "source").glob("*/*.ipynb")))
LIMITS = {"seconds": 60.0, "in_all": 600.0, "memory": 1 << 30, "hook": False}
C = "import ctypes; c = ctypes.CDLL(None)"
NUMBER = "import os; x86 = os.uname().machine == 'x86_64'"


@pytest.fixture
def fenced():
    start, sentence = run.fence()
    if sentence != "fence: namespaces":
        pytest.skip(f"no namespaces here; {sentence}")
    return start


class Outside:
    """What lies outside of a submission: files, servers, a process. `touched`: whether it was reached."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.kept = folder, folder / "kept"
        self.kept.write_text("kept")
        sqlite3.connect(folder / "data").close()
        self.tcp, self.udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.servers = (self.tcp, self.udp, self.unix, self.abstract)
        short = tempfile.mkdtemp()  # such an address has at most 107 bytes
        places = (("127.0.0.1", 0), ("127.0.0.1", 0), f"{short}/s", f"\0crfbook {short}")
        for server, place in zip(self.servers, places, strict=True):
            server.bind(place)
            server.setblocking(False)
            if server.type == socket.SOCK_STREAM:
                server.listen()
        self.victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.names = {
            "folder": str(folder), "kept": str(self.kept), "new": str(folder / "new"), "solved": SOLVED,
            "data": str(folder / "data"), "pid": self.victim.pid, "unix": places[2], "abstract": places[3],
            "tcp": self.tcp.getsockname(), "udp": self.udp.getsockname(),
            "package": str(ROOT / "crfbook" / "__init__.py"),
        }  # fmt: skip
        self.before = self.look()

    def look(self):
        about = [(p.name, p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size)
                 for p in sorted(self.folder.iterdir())]  # fmt: skip
        return about, self.victim.poll()

    def touched(self):
        came = []
        for server in self.servers:
            try:
                came.append(server.recv(9) if server is self.udp else server.accept()[0].close())
            except BlockingIOError:
                pass
        return self.look() != self.before or bool(came)

    def close(self):
        self.victim.kill()
        self.victim.communicate()
        for server in self.servers:
            server.close()
        os.remove(self.names["unix"])
        os.rmdir(os.path.dirname(self.names["unix"]))


@pytest.fixture
def outside(tmp_path):
    found = Outside(tmp_path / "outside")
    yield found
    found.close()


def tried(*lines):
    """A function that tries this and says that it did."""
    return "\n    ".join(["def score(*given):", *lines, "return 'did'"])


HOME = "import os; os.chdir(os.environ['HOME'])"
DEEP = [
    HOME,
    "os.makedirs('a/' * 40, exist_ok=True); d = os.open('.', 0); os.chdir('a/' * 40)",
    "up = '../' * 20",
]
PASS_THE_HOOK = {  # the audit hook alone lets these through
    "os.open with dir_fd": [*DEEP, "x = os.open(up + {solved!r}, 0, dir_fd=d)"],
    "os.open with dir_fd, to write": [*DEEP, "x = os.open(up + {new!r}, os.O_CREAT | os.O_WRONLY, dir_fd=d)"],
    "os.rename with dir_fd": [*DEEP, "os.rename(up + {kept!r}, 'x', src_dir_fd=d)"],
    "os.remove with dir_fd": [*DEEP, "os.remove(up + {kept!r}, dir_fd=d)"],
    "os.mkdir with dir_fd": [*DEEP, "os.mkdir(up + {new!r}, dir_fd=d)"],
    "os.chmod with dir_fd": [*DEEP, "os.chmod(up + {kept!r}, 0, dir_fd=d)"],
    "os.utime with dir_fd": [*DEEP, "os.utime(up + {kept!r}, (1, 1), dir_fd=d)"],
    "a patched helper of os.path": ["import posixpath as p; p._joinrealpath = lambda *a: ('/usr', True)",
                                    "x = open({solved!r})"],
    "names in a folder": ["import os; assert 'kept' in os.listdir({folder!r})"],
    "sqlite3.connect": ["import sqlite3; x = sqlite3.connect({data!r})", "x.execute('create table t (x)')"],
    "os.mkfifo": ["import os; os.mkfifo({new!r})"],
    "os.mknod": ["import os; os.mknod({new!r})"],
    "multiprocessing spawn": ["import multiprocessing as m",
                              "p = m.get_context('spawn').Process(target=open, args=({new!r}, 'w'))",
                              "p.start(); p.join(); assert p.exitcode == 0"],
    "socket.sendmsg": ["import socket as s; x = s.socket(s.AF_INET, s.SOCK_DGRAM)",
                       "assert x.sendmsg([b'x'], [], 0, {udp})"],
    "a file by ctypes": [C, "assert c.creat({new!r}.encode(), 0o600) >= 0"],
    "a program by ctypes": [C, "assert c.system(b'touch ' + {new!r}.encode()) == 0"],
    "a fork by ctypes": [C, "p = c.fork()", "p or c._exit(c.creat({new!r}.encode(), 0o600) < 0)",
                         "import os; assert p > 0 and os.waitpid(p, 0)[1] == 0"],
    "a socket by ctypes": [C, "import socket as s, struct",
                           "x = struct.pack('=HHI8x', 2, s.htons({udp}[1]), 0x0100007F)",
                           "assert c.sendto(c.socket(2, 2, 0), b'x', 1, 0, x, 16) == 1"],
    "signal.pidfd_send_signal": ["import os, signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 9)"],
    "a signal by ctypes": [C, "assert c.kill({pid}, 9) == 0"],
    "memory in no address space": ["import os; os.memfd_create('x')"],
    "memory of System V": [C, "x = c.shmget(0, 9999, 0o1600)", "assert x >= 0 and c.shmctl(x, 0, None) == 0"],
    "a queue of System V": [C, "x = c.msgget(0, 0o1600)", "assert x >= 0 and c.msgctl(x, 0, None) == 0"],
    "namespaces of its own": [C, "assert c.unshare(1 << 28) == 0"],
}  # fmt: skip
REFUSED_BY_THE_HOOK = {
    "open": ["x = open({solved!r})"],
    "open, to write": ["x = open({new!r}, 'w')"],
    "subprocess": ["import subprocess; subprocess.run(['touch', {new!r}], check=True)"],
    "os.fork": ["import os; p = os.fork()", "p or os._exit(0)"],
    "os.posix_spawn": ["import os; p = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 0'], {{}})",
                       "assert os.waitpid(p, 0)[1] == 0"],
    "os.kill": ["import os; os.kill({pid}, 9)"],
    "TCP": ["import socket as s; s.create_connection({tcp}, 5)"],
    "UDP": ["import socket as s; s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', {udp})"],
    "a Unix socket": ["import socket as s; s.socket(s.AF_UNIX).connect({unix!r})"],
    "an abstract socket": ["import socket as s; s.socket(s.AF_UNIX).connect({abstract!r})"],
    "another's environment": ["assert open('/proc/{pid}/environ', 'rb').read()"],
    "the grader's arguments": ["import os; assert open('/proc/%d/cmdline' % os.getppid(), 'rb').read()"],
}  # fmt: skip


READ = {  # tricks that leave nothing to see
    "os.open with dir_fd", "a patched helper of os.path", "names in a folder", "memory in no address space",
    "memory of System V", "a queue of System V", "namespaces of its own", "open",
    "os.fork", "os.posix_spawn", "another's environment", "the grader's arguments",
}  # fmt: skip
NOT_WITHOUT = {  # not tried without the fence, and why
    # these would end, stop or change what runs the tests
    "every process": ["import os; os.kill(-1, 9)"],
    "no end of processes": ["import os", "while True: os.fork()"],
    "another program": ["import os, sys; os.execv(sys.executable, [sys.executable, '-c', ''])"],
    "a process traced": [C, "assert c.ptrace(16, {pid}, 0, 0) == 0"],
    "a mount": [C, "assert c.mount(b'x', {folder!r}.encode(), b'tmpfs', 0, None) == 0"],
    "a mount undone": [C, "assert c.umount2(b'/usr/lib', 2) == 0"],
    # these need rights or a kernel that not every system gives
    "open, of the package": ["x = open({package!r}, 'r+')"],
    "chroot": ["import os; os.chroot('.')"],
    "a device": ["import os; os.mknod('x', 0o60600, os.makedev(254, 0))"],
    "another user": ["import os; os.setgroups([1])"],
    "larger limits": ["import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))"],
    "raw packets": ["import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW)"],
    "the host of a virtual machine": ["import socket as s; s.socket(s.AF_VSOCK, s.SOCK_STREAM)"],
    "keys": [C, NUMBER, "assert c.syscall(250 if x86 else 219, 0, -3, 0) >= 0"],
    "io_uring": [C, "assert c.syscall(425, 1, ctypes.create_string_buffer(256)) >= 0"],
    "a fork of another kind": [C, "x = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)", "p = c.syscall(435, x, 88)",
                               "p or c._exit(0)", "assert p > 0"],
    "a fork by number": [C, NUMBER, "p = c.syscall(56 if x86 else 220, 17, 0, 0, 0, 0)", "p or c._exit(0)",
                         "assert p > 0"],
    "a fork by another table": [C, "p = c.syscall((1 << 30) + 57, 0)", "p or c._exit(0)", "assert p > 0"],
    # there is nothing of the kind without the fence
    "who started it, traced": [C, "assert c.ptrace(16, 1, 0, 0) == 0"],
    "a descriptor that leads out": ["import os; found = []", "for d in range(3, 999):",
                                    "    try: found.append(os.open('../' * 40 + {solved!r}, 0, dir_fd=d))",
                                    "    except OSError: pass", "assert found"],
    "the log, replaced": [HOME, "os.remove('log')"],
    "the log, renamed": [HOME, "os.rename('log', 'x')"],
    "the task, changed": [HOME, "open('task', 'r+b')"],
}  # fmt: skip
WITHOUT = PASS_THE_HOOK | REFUSED_BY_THE_HOOK


def code_of(lines, outside):
    return tried(*(line.format(**outside.names) for line in lines))


@pytest.mark.parametrize("name", WITHOUT)
def test_a_trick_succeeds_without_the_fence(fenced, outside, name):
    asked = [("cell", code_of(WITHOUT[name], outside))], [("score", ())]
    (found,), wrong = run.ask(*asked, start=run.BARE, **LIMITS | {"hook": name in PASS_THE_HOOK})
    assert (str(found), wrong) == ("did", {})
    if "{pid}" in str(WITHOUT[name]) and name not in READ:
        outside.victim.wait(60)
    assert outside.touched() == (name not in READ)


def points(about, nb, start, **limits):
    """({test: points}, what the teacher reads of `score`)."""
    marks, _ = grade(about, nb, start=start, **LIMITS | limits)
    return {test.removesuffix("-test"): mark.points for test, mark in marks.items()}, marks["score-test"].note


def none_left(folder):
    """No process names the folder any more; those that are being killed may take a moment."""
    for _ in range(600):
        named = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                named += [path] if str(folder).encode() in path.read_bytes() else []
            except OSError:  # it has ended
                pass
        if not named:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("name", [*WITHOUT, *NOT_WITHOUT])
def test_the_fence_holds(about, submitted, fenced, outside, name):
    """The trick fails, earns nothing and leaves nothing; the other functions are graded."""
    code = code_of((WITHOUT | NOT_WITHOUT)[name], outside)
    found, note = points(about, submitted(score=code), fenced)
    assert found == {"score": 0, "log_z": 3, "sums": 1}
    assert "Error" in note and "returned" not in note, note
    assert not outside.touched()


LINES = [HOME, "log = open('log', 'ab', 0)"]
COSTS_ITSELF = {  # what a submission can do to itself
    "kills the first process": [C, "c.kill(1, 9)"],
    "interrupts the first process": [C, "c.kill(1, 2)", "__import__('time').sleep(60)"],
    "stops": [C, "c.kill(c.getpid(), 19)"],
    "ends with the fence's code": [C, "c._exit(97)"],
    "leaves its session": [C, "c.prctl(1, 0, 0, 0, 0); c.setsid()", "while True: c.sleep(9)"],
    "empties the log": [HOME, "open('log', 'wb')", "import os; os._exit(97)"],
    "floods the log with lines": [*LINES, "while True: log.write(b'\\n' * 1000000)"],
    "floods the log with dictionaries": [*LINES, "while True: log.write(b'{{}}\\n' * 300000)"],
    "floods the log with answers": [*LINES, "while True: log.write(b'{{\"answer\": 0}}\\n' * 30000)"],
    "floods the log with one line": [*LINES, "log.write(b'[')", "while True: log.write(b'[],' * 300000)"],
    "refuses": [*LINES, "log.write(b'\\n{{\"refused\": \"x\"}}\\n')"],
    "fills its folder": [HOME, "for n in range(99): open(f'x{{n}}', 'wb').write(bytes(1 << 20))"],
    "has no end of files": [HOME, "for n in range(9999): open(f'x{{n}}', 'w')"],
    "has no end of folders": [HOME, "while True: os.mkdir('x'); os.chdir('x')"],
    "takes memory by threads": ["import threading", "for n in range(999): threading.Thread(target=bytearray, "
                                "args=(1 << 24,)).start(); x = bytearray(1 << 24); given += (x,)"],
    "says what cannot be written": ["raise ValueError('\\ud800\\x1b[2J')"],
}  # fmt: skip


WAITED_FOR = {"stops", "leaves its session"}


@pytest.mark.parametrize("name", COSTS_ITSELF)
def test_a_submission_costs_itself_alone(about, submitted, fenced, outside, tmp_path, monkeypatch, name):
    """What happens to it stays there: others are graded, nothing outside changes, no process is left."""
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    seconds = 3.0 if name in WAITED_FOR else 60.0
    nb = submitted(score=code_of(COSTS_ITSELF[name], outside))
    found, note = points(about, nb, fenced, seconds=seconds)
    assert found == {"score": 0, "log_z": 3, "sums": 1}
    assert note.isprintable()
    assert none_left(tmp_path / "work") and not list((tmp_path / "work").iterdir()) and not outside.touched()


# ---- the grader as a whole ----

GRADER = """
import sys
from pathlib import Path
from tools import grade
from tools.grading import assignment, run, score
assignment.SOURCE = Path(sys.argv[1])
grade.MARKS = assignment.SOURCE.parent / "marks.sqlite"
start = run.BARE if sys.argv[2] == "bare" else None
ask = score.ask
score.ask = lambda *given, **more: ask(*given, **more, start=start, hook=False, seconds=float(sys.argv[3]))
sys.exit(grade.main(sys.argv[4:]))
"""


def grader(folder, pile, *options, fence="fence", seconds="5", **more):
    """The command in a process of its own, without the hook; its temporary files lie beside the pile."""
    command = [sys.executable, "-c", GRADER, str(folder.parents[1]), fence, seconds, str(pile), *options]
    (pile.parent / "work").mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(pile.parent / "work"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, **more)


def pile_of(tmp_path, **notebooks):
    (tmp_path / "pile").mkdir()
    for name, nb in notebooks.items():
        nbformat.write(nb, tmp_path / "pile" / f"{name}.ipynb")
    return tmp_path / "pile"


KILLS = """\
def score(*given):
    import os, signal
    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)
    return 0"""


def test_a_submission_that_kills_its_parent_is_one_row(folder, submitted, fenced, tmp_path):
    pile = pile_of(tmp_path, ann=submitted(), bo=submitted(score=KILLS), cy=submitted())
    with grader(folder, pile, fence="bare") as process:
        assert "ann" not in process.communicate()[0] and process.returncode == -signal.SIGKILL, "can fail"
    with grader(folder, pile) as process:
        said = process.communicate()[0].splitlines()
    assert process.returncode == 0 and said[0] == "fence: namespaces"
    rows = [line.split()[0::2] for line in said[1:] if line[0] != " "]
    assert [(name, row[:3]) for name, *row in rows] == [
        ("ann", ["6", "6", "2"]), ("bo", ["4", "6", "2"]), ("cy", ["6", "6", "2"])]  # fmt: skip


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_grader_that_ends_leaves_no_worker(folder, submitted, fenced, tmp_path, end):
    """The teacher's Ctrl-C, or a kill that leaves no time; the submission would stay."""
    stays = tried(*COSTS_ITSELF["leaves its session"])
    pile = pile_of(tmp_path, ann=submitted(score=stays))
    with grader(folder, pile, seconds="600", stderr=subprocess.DEVNULL) as process:
        while not [log for log in tmp_path.glob("work/*/log") if '{"call": 0}' in log.read_text()]:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(end)
        process.communicate()
    assert none_left(tmp_path / "work")


def test_the_log_is_read_to_its_first_bad_line(tmp_path):
    good, log = b'{"call": 0}\n', tmp_path / "log"
    deep, long = b'{"answer": ' + b"[" * 300_000 + b"\n", b'{"answer": "' + b"x" * run.worker.LINE
    for bad in (b"\n", b"{}\n", b"[]\n", b"x\n", b'{"answer": []}\n', b'{"call": 0}', deep, long):
        log.write_bytes(good + bad + good * 3)
        assert list(run._lines(log)) == [{"call": 0}, None]
    log.write_bytes(good * (run.LINES + 9))
    assert sum(1 for _ in run._lines(log)) == run.LINES
    log.unlink()
    os.mkfifo(log)
    assert list(run._lines(log)) == []


# ---- where the system does not allow it ----


@pytest.fixture
def refuses(tmp_path, monkeypatch):
    """refuses(code): the fence is another program, which takes the same arguments."""

    def instead(code):
        (tmp_path / "fence.py").write_text(f"import json, os, sys\nfolder = sys.argv[-1]\n{code}")
        monkeypatch.setattr(run, "FENCE", str(tmp_path / "fence.py"))
        run.fence.cache_clear()

    yield instead
    run.fence.cache_clear()


SAYS = """open(folder + "/log", "w").write(json.dumps({"refused": "unshare: no"}) + "\\n"); os._exit(97)"""


@pytest.mark.skipif(sys.platform != "linux", reason="says so without a trial")
@pytest.mark.parametrize(
    "code, why", [(SAYS, "unshare: no"), ("1 / 0", "does not start"), ("", "does not start")]
)
def test_where_the_fence_cannot_stand_the_hook_stays(about, submitted, refuses, code, why):
    refuses(code)
    start, sentence = run.fence()
    assert start == run.BARE and "not safe against intent" in sentence and why in sentence
    assert points(about, submitted(), None, hook=True) == ({"score": 2, "log_z": 3, "sums": 1}, "")
    reads = tried(f"open({SOLVED!r})")
    found, note = points(about, submitted(score=reads), None, hook=True)
    assert found["score"] == 0 and "may not open this file" in note


def test_a_fence_that_falls_later_is_no_fault_of_the_submission(about, submitted, refuses):
    refuses(SAYS)
    with pytest.raises(run.Refused, match="unshare: no"):
        points(about, submitted(), [*run.BARE, run.FENCE])


def test_what_is_there_in_the_fence(fenced):
    """No folder of the book but the package; of the system what Python loads."""
    code = f"""\
import os
def names(*given):
    return [sorted(os.listdir(place)) for place in ("/", {str(ROOT)!r}, os.environ["HOME"])]
def loads(*given):
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    import crfbook.brute, numpy.linalg, scipy.optimize, sklearn.linear_model, pandas, matplotlib.pyplot
    return crfbook.brute.__name__"""
    asked = [("cell", code)], [("names", ()), ("loads", ())]
    (names, loads), wrong = run.ask(*asked, start=fenced, **LIMITS | {"seconds": 60.0, "memory": run.MEMORY})
    assert wrong == {} and loads == "crfbook.brute"
    assert {"proc", "sys", "home", "run", "var", "boot"}.isdisjoint(names[0])
    inside = {
        place.relative_to(ROOT).parts[0] for place in map(Path, run.PYTHON) if place.is_relative_to(ROOT)
    }
    assert names[1:] == [sorted({"tools", *inside}), ["log", "task"]]
    assert inside <= {
        "crfbook",
        "data_fetch",
        Path(sys.prefix).name,
    }  # an environment may lie in the checkout
