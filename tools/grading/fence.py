"""The fence around a submission: `python fence.py HIDDEN PLACE ... WORKER FOLDER` on Linux, as any user.

It runs WORKER FOLDER where nothing else is: a root of its own with some PLACEs to read and an empty FOLDER
in memory, no network, no other process. What is not there needs no list of forbidden events.

    launcher    makes the namespaces, waits; it ends with the grader
    first       builds the root, gives up all rights, waits; it ends with the launcher, and all ends with it
    worker      runs the submission; it can neither stop nor trace the two

HIDDEN is the folder of the book: where a PLACE holds it, it is empty but for PLACEs in it. Exit code REFUSED:
the system does not allow it, and the log in FOLDER says why. Only the standard library.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys

REFUSED = 97
ROOM = "size=64m,nr_inodes=4096,mode=700"  # of the folder
SYSTEM = (  # what a Python loads beside itself
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/nix/store",
    "/gnu/store", "/etc/ld.so.cache", "/etc/alternatives", "/dev/null",
)  # fmt: skip
LIMITS = {  # beside those of the worker
    resource.RLIMIT_CPU: 300, resource.RLIMIT_NPROC: 64, resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_MEMLOCK: 0, resource.RLIMIT_MSGQUEUE: 0,
}  # fmt: skip

# linux/sched.h, sys/mount.h, linux/prctl.h, asm/unistd.h
NEW_MOUNT, NEW_IPC, NEW_USER, NEW_PID, NEW_NET, THREAD = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30, 1 << 16
NO_SUID, NO_DEVICE, BIND, BELOW, PRIVATE, DETACH = 2, 4, 1 << 12, 1 << 14, 1 << 18, 2
DEATH_SIGNAL, DUMPABLE, FILTER, BOUNDS, NO_NEW_RIGHTS = 1, 4, 22, 24, 38
MACHINES = {  # its number, clone, and what is refused: execve, execveat, unshare, fork, vfork;
    # memfd_create, memfd_secret, shmget, semget, msgget, io_uring_setup: no limit counts their memory;
    # add_key, request_key, keyctl: the keys of who runs this; socket: some kinds (vsock) know no namespaces
    "x86_64": (0xC000003E, 56, (59, 322, 272, 57, 58, 319, 447, 29, 64, 68, 425, 248, 249, 250, 41)),
    "aarch64": (0xC00000B7, 220, (221, 281, 97, 279, 447, 194, 190, 186, 425, 217, 218, 219, 198)),
}
CLONE3, MOUNT_SETATTR = 435, 442

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """A function of the C library; OSError if it fails."""
    arguments = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def namespaces():
    """New ones of users, mounts, processes, network and System V; root in there is who runs this out here."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USER | NEW_MOUNT | NEW_PID | NEW_NET | NEW_IPC)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def read_only(path):
    """A mount and all that is mounted below it."""
    call("syscall", MOUNT_SETATTR, -100, path, 0x8000, (ctypes.c_uint64 * 4)(1 | NO_SUID, 0, 0, 0), 32)


def build(folder, hidden, places):
    """The new root, made in `folder` and then entered: `places` to read, and the task, the log and room."""
    call("mount", "none", "/", None, BELOW | PRIVATE, None)
    own = [f"{folder}/task", f"{folder}/log"]  # these are open before the new root covers them
    places = sorted({path for path in (*places, *SYSTEM) if os.path.exists(path)})
    links = {path: os.readlink(path) for path in places if os.path.islink(path)}
    held = {path: os.open(path, os.O_PATH) for path in (*places, *own) if path not in links}
    call("mount", "tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICE, "size=1m,mode=755")

    def bind(path):
        source, target = f"/proc/self/fd/{held[path]}", folder + path
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        call("mount", source, target, None, BIND | BELOW, None)
        os.close(held[path])

    for path in places:  # what lies in another one comes after it
        if path not in links:
            bind(path)
        elif not os.path.lexists(folder + path):
            os.makedirs(os.path.dirname(folder + path), exist_ok=True)
            os.symlink(links[path], folder + path)
        if hidden.startswith(path + "/"):
            call("mount", "tmpfs", folder + hidden, "tmpfs", NO_SUID | NO_DEVICE, "size=1m,mode=755")
    os.makedirs(folder + folder)
    read_only(folder)
    call("mount", "tmpfs", folder + folder, "tmpfs", NO_SUID | NO_DEVICE, ROOM)
    for path in own:
        bind(path)
    read_only(f"{folder}{folder}/task")
    os.chdir(folder)
    call("pivot_root", ".", ".")  # the old root lies upon the new one, and goes
    call("umount2", ".", DETACH)
    os.chdir(folder)


def give_up_rights():
    """No capability, and none by any program."""
    for number in range(64):
        libc.prctl(BOUNDS, number, 0, 0, 0)
    call("prctl", NO_NEW_RIGHTS, 1, 0, 0, 0)
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    call("prctl", DUMPABLE, 0, 0, 0, 0)  # nobody traces it


def refuse():
    """No other process, program or socket, and no memory outside of the address space. Threads may be."""
    machine, clone, refused = MACHINES[os.uname().machine]

    def line(code, value, yes=0, no=0):  # of the filter: lines to pass over
        return struct.pack("=HBBI", code, yes, no, value)

    load, equal, least, any_of, end = 0x20, 0x15, 0x35, 0x45, 0x06
    error, missing = (line(end, 0x50000 | number) for number in (errno.EPERM, errno.ENOSYS))
    allow = line(end, 0x7FFF0000)
    lines = [line(load, 4), line(equal, machine, 1), error, line(load, 0), line(least, 1 << 30, 0, 1), error]
    for number in refused:
        lines += [line(equal, number, 0, 1), error]
    lines += [line(equal, CLONE3, 0, 1), missing]  # its flags cannot be read here; the C library takes clone
    lines += [line(equal, clone, 0, 3), line(load, 16), line(any_of, THREAD, 1), error, allow]
    code = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    call("prctl", FILTER, 2, program, 0, 0)


def wait_for(process):
    """Its exit code. Orphans that end before it are buried."""
    while True:
        found, status = os.wait()
        if found == process:
            return os.waitstatus_to_exitcode(status)


def main(hidden, *places):
    *places, worker, folder = places
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND)
    try:
        if os.uname().machine not in MACHINES:
            raise OSError(0, f"no filter for {os.uname().machine}")
        namespaces()
        call("prctl", DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        first = os.fork()
        if first:
            os._exit(max(wait_for(first), 0))
        call("prctl", DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        build(folder, hidden, (*places, worker))
        give_up_rights()
        for kind, most in LIMITS.items():
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        second = os.fork()
    except OSError as error:
        os.write(log, json.dumps({"refused": error.strerror}).encode() + b"\n")
        os._exit(REFUSED)
    if second:
        wait_for(second)
        os._exit(0)  # whatever the code of the submission says
    os.closerange(3, 1 << 16)  # what is open leads out of here
    refuse()
    sys.argv = [worker, folder]
    with open(worker, encoding="utf-8") as file:
        code = compile(file.read(), worker, "exec")
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    main(*sys.argv[1:])
