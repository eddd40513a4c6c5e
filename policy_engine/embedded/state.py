"""The state folder of the embedded mode: its layout, and the lock that only one `up` can hold.

The lock is an ``flock``: the kernel drops it with the process, also after kill -9, so a stale lock
cannot exist. The pid written beside it is for the message only, never for the decision.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policy_engine.embedded.plain import in_words
from policy_engine.errors import SettingsError, StartError, StateFolderBusyError

# sun_path holds 108 octets with its NUL; agents' names and suffixes need the rest.
SOCKET_FOLDER_MAX: Final = 56
_FOLDERS: Final = (
    "spool",
    "openbao",
    "tls",
    "agents",
    "run",
    "logs",
    "tokens",
    "packages",
    "sources",
)


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Where everything stands. Folders are made with mode 0700."""

    root: Path

    @classmethod
    def prepare(cls, root: Path) -> StateFolder:
        """Make the layout (idempotent) and return it with an absolute root.

        Raises:
            SettingsError: It cannot be made there.
        """
        state = cls(root.absolute())
        try:
            state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in _FOLDERS:
                folder = state.root / name
                folder.mkdir(exist_ok=True, mode=0o700)
                folder.chmod(0o700)
            # SQLite's other files take its mode; the folder may be one that others can enter.
            os.close(os.open(state.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            state.database.chmod(0o600)
        except OSError as error:
            raise SettingsError(
                f"state folder {state.root} cannot be used: {in_words(error)[0]}",
                fix="choose a folder that you may write in: --state FOLDER or SLUICEGATE_STATE",
            ) from None
        return state

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "sluicegate.db"

    @property
    def endpoints(self) -> Path:
        """JSON with the addresses of what runs; written when everything listens."""
        return self.root / "run" / "endpoints.json"

    @property
    def lock_file(self) -> Path:
        """The file that a running `up` locks."""
        return self.root / "run" / "up.lock"

    def folder(self, name: str) -> Path:
        """One of the folders of the layout."""
        return self.root / name

    def sockets(self) -> Path:
        """A folder short enough for unix sockets, the same for the same state folder."""
        direct = self.root / "run"
        if len(os.fsencode(direct)) <= SOCKET_FOLDER_MAX:
            return direct
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        short = Path(tempfile.gettempdir()) / f"sluicegate-{os.getuid()}-{digest}"
        short.mkdir(mode=0o700, exist_ok=True)
        info = short.lstat()
        if info.st_uid != os.getuid() or info.st_mode & 0o077:
            raise StateFolderBusyError(
                f"{short} belongs to somebody else", fix="remove it, or use a shorter state folder path"
            )
        return short

    def clear_short_sockets(self) -> None:
        """Remove the short folder when it is empty (after a clean stop)."""
        folder = self.sockets()
        if folder != self.root / "run" and not any(folder.iterdir()):
            folder.rmdir()


class UpLock:
    """Held for the lifetime of one `up`."""

    def __init__(self, state: StateFolder) -> None:
        self._path = state.lock_file
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StateFolderBusyError: Another `up` holds it; the message names its pid.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise StateFolderBusyError(
                f"another `sluicegate up` (pid {pid}) runs on {self._path.parent.parent}",
                fix=f"stop it with Ctrl-C or `kill {pid}`, or choose another --state",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def read_kept(file: Path) -> dict[str, Any]:
    """What a start before this one chose and kept; nothing at the first.

    Raises:
        StartError: It is damaged; names the file.
    """
    try:
        kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise StartError(f"{file} cannot be read", fix="remove it: ports are chosen anew then")
    return kept


def holder(state: StateFolder) -> int | None:
    """Pid of the `up` that holds the lock now, ``None`` when nobody does."""
    try:
        fd = os.open(state.lock_file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(fd)
