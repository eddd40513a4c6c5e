"""What an agent must remember over its own death: fence, burnt key ids, orders, violations.

Every write is durable (fsync of file and folder) before the call returns, and the caller acts only
afterwards. Nonces and key material are never here. A file that cannot be read is an error, not an empty
state: an agent that forgot its fence or a close order would be unsafe. A write that fails raises OSError and
leaves what was there before: the caller then must not act.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evidence.durable import replace, sync_folder
from keymgmt.errors import CouldNotTell

ACKS_KEPT: Final = 64  # stored results of operations, for repeats
LAST_BURNT: Final = 8  # key ids in a read-back
SEQ_BLOCK: Final = 10_000  # sample numbers reserved by one write


class StateFolder:
    """Durable JSON documents in the agent's folder, mode 0600."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # it may have been made by somebody else

    def claim(self) -> int:
        """Keep the folder for this process as long as it lives; return the descriptor to keep open.

        Raises:
            CouldNotTell: another agent runs on it. Two would pass one fence side by side.
        """
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise CouldNotTell("another agent runs on this folder", fix="end it first") from None
        return descriptor

    def read(self, name: str) -> dict[str, Any]:
        """Return a document, {} when it was never written.

        Raises:
            CouldNotTell: it is there but not readable.
        """
        try:
            doc = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            raise unreadable(name) from None
        if not isinstance(doc, dict):
            raise unreadable(name)
        return doc

    def write(self, name: str, doc: Mapping[str, Any]) -> None:
        """Replace a document durably."""
        replace(self.folder / name, [json.dumps(doc, separators=(",", ":")).encode()])

    def lines(self, name: str) -> list[str]:
        """Return the whole lines of a file; a torn last one is cut off durably, so that none grows onto it.

        Raises:
            CouldNotTell: it is there but not readable.
        """
        path = self.folder / name
        try:
            octets = path.read_bytes() if path.exists() else b""
            whole = octets.rfind(b"\n") + 1
            if whole < len(octets):
                _cut(path, whole)
            return octets[:whole].decode().splitlines()
        except (OSError, ValueError):
            raise unreadable(name) from None

    def append(self, name: str, line: str) -> None:
        """Append a line durably, or nothing of it."""
        path = self.folder / name
        fresh = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            try:
                _write_whole(descriptor, line.encode() + b"\n")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)
        if fresh:
            sync_folder(self.folder)

    def rename(self, name: str, other: str) -> None:
        """Give a file another name; needs no space on the disk. Does nothing when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / name).replace(self.folder / other)
            sync_folder(self.folder)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)


class Burnt:
    """Key ids this agent ever touched. An id is here before its key reaches hardware."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        ids = [line.split(" ")[0] for line in state.lines("burnt.log")]  # a torn last line was never used
        self._known, self._order = set(ids), deque(ids, LAST_BURNT)

    def burn(self, key_id: str, check: str) -> None:
        """Record a key id and its check value, durably."""
        self._state.append("burnt.log", f"{key_id} {check}")
        self._order.append(key_id)
        self._known.add(key_id)

    def last(self) -> tuple[str, ...]:
        """Return the newest ids, at most eight, newest last."""
        return tuple(self._order)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._known


class SampleNumbers:
    """Sample sequence, monotone over restarts; a block is reserved by one durable write."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._next = self._end = int(state.read("samples.json").get("end", 0))
        self._lock = threading.Lock()

    def take(self) -> int:
        """Return the next number."""
        with self._lock:
            if self._next >= self._end:
                end = self._next + SEQ_BLOCK
                self._state.write("samples.json", {"end": end})  # before any number of the block is given
                self._end = end
            self._next += 1
            return self._next


def unreadable(name: str) -> CouldNotTell:
    """Return the error for a state file that is there and makes no sense."""
    return CouldNotTell(f"state file {name} cannot be read", fix="restore it or re-enrol")


def _write_whole(descriptor: int, octets: bytes) -> None:
    if os.write(descriptor, octets) < len(octets):
        raise OSError(errno.ENOSPC, "it did not fit")


def _cut(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
