"""What an agent must remember over its own death: fence, burnt key ids, orders, violations.

Every write is durable (fsync of file and folder) before the call returns, and the caller acts only
afterwards. Nonces and key material are never here. A file that cannot be read is an error, not an empty
state: an agent that forgot its fence or a close order would be unsafe.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from keymgmt.errors import CouldNotTell

ACKS_KEPT: Final = 64  # stored results of operations, for repeats
SEQ_BLOCK: Final = 10_000  # sample numbers reserved by one write


class StateFolder:
    """Durable JSON documents in the agent's folder, mode 0600."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, name: str) -> dict[str, Any]:
        """Return a document, {} when it was never written.

        Raises:
            CouldNotTell: it is there but not readable.
        """
        try:
            doc: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise CouldNotTell(f"state file {name} cannot be read", fix="restore it or re-enrol") from None
        return doc

    def write(self, name: str, doc: Mapping[str, Any]) -> None:
        """Replace a document durably."""
        self.write_octets(name, json.dumps(doc, separators=(",", ":")).encode())

    def write_octets(self, name: str, octets: bytes) -> None:
        """Replace a file durably."""
        temporary = self.folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / name)
        sync_folder(self.folder)

    def append(self, name: str, line: str) -> None:
        """Append a line durably."""
        path = self.folder / name
        fresh = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if fresh:
            sync_folder(self.folder)


class Burnt:
    """Key ids this agent ever touched. An id is here before its key reaches hardware."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        path = state.folder / "burnt.log"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # a torn last line was never used
        self._order = [line.split(" ")[0] for line in lines]
        self._known = set(self._order)

    def burn(self, key_id: str, check: str) -> None:
        """Record a key id and its check value, durably."""
        self._state.append("burnt.log", f"{key_id} {check}")
        self._order.append(key_id)
        self._known.add(key_id)

    def last(self, count: int = 8) -> tuple[str, ...]:
        """Return the newest ids, newest last."""
        return tuple(self._order[-count:])

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
                self._end = self._next + SEQ_BLOCK
                self._state.write("samples.json", {"end": self._end})
            self._next += 1
            return self._next


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
