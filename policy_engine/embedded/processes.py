"""The processes of the software links: started, adopted, restarted and ended by `up`'s main thread.

Agents and data planes have a session of their own and outlive an `up` that is killed; the next one
adopts those whose record is still locked by a living process with the same start time, and whose
configuration and program are the ones it would give: processes of two programs need not read each other.
Relay and traffic generator end with the fork server.
A data plane that died is a dead SecY: its successor has no key, and the conductor rekeys the link.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evidence.logs import get_logger
from keymgmt.errors import KeymgmtError
from keymgmt.forkserver import ForkServer, Role
from keymgmt.processes import Spawned, end, program, survivor

log = get_logger("policy_engine.embedded.processes")
ORDER: Final[tuple[Role, ...]] = ("relay", "dataplane", "agent", "traffic")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One process that should run: its role, its name, what its module's `run` takes."""

    role: Role
    name: str
    config: Mapping[str, Any]

    @property
    def key(self) -> str:
        """As the fork server names it."""
        return f"{self.role}/{self.name}"


class Processes:
    """Keeps the wanted processes running. Call `keep` from one thread only."""

    def __init__(
        self, run_folder: Path, logs: Path, sockets: Path, pauses: Mapping[str, float] | None = None
    ) -> None:
        """Take folders for records, logs and sockets, and pauses before a restart (role -> seconds)."""
        self._pauses = dict(pauses or {})
        self._run = run_folder
        self._logs = logs
        self._sockets = sockets
        self._server: ForkServer | None = None
        self._wanted: list[Wanted] = []
        self._running: dict[str, Spawned] = {}
        self._lock = threading.Lock()
        self.adopted: list[str] = []
        self.restarts: dict[str, int] = {}
        self._died: dict[str, float] = {}

    def start_server(self) -> None:
        """Start the fork server (about a second: it imports the agents' set)."""
        self._server = ForkServer.start(self._sockets / "fork.sock", self._logs / "forkserver.log")

    @property
    def pids(self) -> dict[str, int]:
        """Name -> pid of everything that runs, the fork server included."""
        with self._lock:
            found = {key: process.pid for key, process in self._running.items()}
        if self._server is not None:
            found["forkserver"] = self._server.pid
        return found

    def wanted(self) -> list[Wanted]:
        """What should run."""
        return list(self._wanted)

    def want(self, wanted: list[Wanted]) -> None:
        """Declare what should run, adopt what already does, start the rest in a sensible order.

        Raises:
            KeymgmtError: One of them cannot be started.
        """
        self._wanted = sorted(wanted, key=lambda one: ORDER.index(one.role))
        names = {one.key for one in self._wanted}
        for record in sorted((self._run / "processes").glob("*.json")):
            self._end_unwanted(record, names)
        for one in self._wanted:
            self._adopt_or_start(one)

    def keep(self) -> list[str]:
        """Restart what has died, each role after its pause; returns the names."""
        if self._server is None:
            return []
        self._server.exits()
        dead = [one for one in self._wanted if not self._running[one.key].alive()]
        now = time.monotonic()
        for one in dead:
            self._died.setdefault(one.key, now)
        due = [one for one in dead if now - self._died[one.key] >= self._pauses.get(one.role, 0.0)]
        for one in due:
            del self._died[one.key]
            log.warning("process_restarted", role=one.role, process=one.name)
            self.restarts[one.key] = self.restarts.get(one.key, 0) + 1
            try:
                self._start(one)
            except KeymgmtError as error:
                log.warning("process_not_started", role=one.role, process=one.name, reason=str(error))
        return [one.key for one in due]

    def stop(self) -> None:
        """End everything: traffic first, then agents (their paths close), data planes, relay, fork server."""
        for role in ("traffic", "agent", "dataplane", "relay"):
            ending = [
                threading.Thread(target=end, args=(process,))
                for key, process in self._running.items()
                if key.startswith(f"{role}/")
            ]
            for thread in ending:
                thread.start()
            for thread in ending:
                thread.join()
        with self._lock:
            self._running.clear()
        if self._server is not None:
            self._server.stop()
            self._server = None
        for record in (self._run / "processes").glob("*"):
            record.unlink(missing_ok=True)

    def _adopt_or_start(self, one: Wanted) -> None:
        found = survivor(self._record(one)) if one.role in ("agent", "dataplane") else None
        if found is not None and self._as_wanted(one):
            with self._lock:
                self._running[one.key] = found
            self.adopted.append(one.key)
            log.info("process_adopted", role=one.role, process=one.name, pid=found.pid)
            return
        if found is not None:
            log.info("process_replaced", role=one.role, process=one.name, pid=found.pid)
            end(found)
        self._start(one)

    def _start(self, one: Wanted) -> None:
        assert self._server is not None
        folder = self._run / "processes"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._config(one).write_text(_text(one.config), encoding="utf-8")
        process = self._server.spawn(
            one.role,
            one.name,
            one.config,
            record=self._record(one),
            log=self._logs / f"{one.role}-{one.name}.log",
        )
        with self._lock:
            self._running[one.key] = process

    def _end_unwanted(self, record: Path, names: set[str]) -> None:
        """A survivor that nobody wants any more (a link was removed) is ended."""
        found = survivor(record)
        if found is not None and f"{found.role}/{found.name}" not in names:
            end(found)

    def _record(self, one: Wanted) -> Path:
        return self._run / "processes" / f"{one.role}-{one.name}.json"

    def _config(self, one: Wanted) -> Path:
        return self._run / "processes" / f"{one.role}-{one.name}.config"

    def _as_wanted(self, one: Wanted) -> bool:
        """Whether a survivor was given this configuration, by this program."""
        try:
            return self._config(one).read_text(encoding="utf-8") == _text(one.config)
        except OSError:
            return False


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps({"program": program(), "config": dict(config)}, sort_keys=True, default=os.fspath)
