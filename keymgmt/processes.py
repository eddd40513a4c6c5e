"""Long-lived processes and how to know them again: a record with pid, start time, boot id and nonce.

A record's file stays locked (flock) by the process that it names for as long as that lives. So a survivor is
recognised only when the lock is held *and* pid, start time and boot fit: a reused pid never passes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import secrets
import select
import signal
import time
import traceback
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from keymgmt.errors import SaidNo

_LETTING_GO_S: Final = 5.0  # from a holder's death to its last thread's


class AlreadyRunning(SaidNo):
    """The process that a record names still lives."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """One process.

    Attributes:
        start_time: field 22 of /proc/<pid>/stat, clock ticks since boot.
        nonce: random, new for each start.
    """

    role: str
    name: str
    pid: int
    start_time: int
    boot_id: str
    nonce: str

    @classmethod
    def of_self(cls, role: str, name: str) -> Self:
        """Describe the calling process."""
        pid = os.getpid()
        return cls(role, name, pid, start_time(pid) or 0, boot_id(), secrets.token_hex(16))

    def alive(self) -> bool:
        """Whether this very process still lives and is no zombie."""
        return self.boot_id == boot_id() and start_time(self.pid) == self.start_time


@cache
def program() -> str:
    """Return what names the code that agents and data planes run: SHA-256 over its files, in hex.

    A version number would be the same for two states of a source tree whose processes do not read each other.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for file in sorted(path for name in ("evidence", "keymgmt") for path in (root / name).rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def hold(record: Path, me: Spawned) -> int:
    """Lock a record for the life of this process and write it; return the descriptor to keep open.

    A killed holder of several threads is gone before the last of them has let go of the lock: that is waited
    for.

    Raises:
        AlreadyRunning: another process holds it.
    """
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(record, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LETTING_GO_S
    while not _taken(descriptor, fcntl.LOCK_EX):
        holder = _named(descriptor)
        if holder is None or holder.alive() or time.monotonic() > deadline:
            os.close(descriptor)
            raise AlreadyRunning(f"{me.role} {me.name} already runs", fix="adopt or end it first")
        time.sleep(0.01)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)
    os.fsync(descriptor)
    return descriptor


def survivor(record: Path) -> Spawned | None:
    """Return the living process that a record names, None when it is gone."""
    try:
        descriptor = os.open(record, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = None if _taken(descriptor, fcntl.LOCK_SH) else _named(descriptor)
    finally:
        os.close(descriptor)
    return found if found is not None and found.alive() else None


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(descriptor: int) -> Spawned | None:
    try:
        return Spawned(**json.loads(os.pread(descriptor, 65_536, 0)))
    except (ValueError, TypeError):
        return None


def end(process: Spawned, grace_s: float = 3.0) -> None:
    """End a process: SIGTERM, then SIGKILL. Signals by pidfd, so that a reused pid is never hit."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if not process.alive():
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(pidfd, number)
            if select.select([pidfd], [], [], grace_s)[0]:
                return
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def keep_out_of_core_files() -> None:
    """Let this process, which holds keys, leave no memory in a core file.

    The limit is not enforced where cores are piped to a program (core(5)), so the memory is filtered too.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/coredump_filter").write_text("0")


def start_time(pid: int) -> int | None:
    """Return the start time of a process, None when there is none or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def where(error: BaseException) -> str:
    """Return type and place of an error for a log; never its text, which could hold anything."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
