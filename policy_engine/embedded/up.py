"""`sluicegate up`: the main thread starts, watches and ends processes; the event loop runs beside it.

Order of the start: the lock; certificates; OpenBao, fork server and migration as processes of their own;
only then this process imports its own parts (seconds of CPU), which they use to get ready. OpenBao is
started and restarted from the main thread, because its life is tied to the thread that forks it.

A clean stop (Ctrl-C, SIGTERM, or SIGHUP: the terminal was closed) ends everything, agents and data planes
too. After kill -9 those live on and the next `up` adopts them; OpenBao, relay and traffic end with this
process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from policy_engine.embedded.contact import Contact
from policy_engine.embedded.logfile import log_to
from policy_engine.embedded.plain import in_words
from policy_engine.embedded.state import StateFolder, UpLock
from policy_engine.embedded.stop import Stop
from policy_engine.errors import SettingsError, StartError

WATCH_SECONDS: Final = 0.5
READY_SECONDS: Final = 60.0
PROBLEMS_SHOWN: Final = 20  # of declared state; `sluicegate check` shows all


def run(overrides: Mapping[str, Any], config: Path | None = None, *, allow_faults: bool = False) -> int:
    """Run until a signal; returns the exit code.

    Args:
        overrides: Settings from the command line.
        config: Settings file.
        allow_faults: Data planes accept fault injection. No setting and no option of `up` sets it.
    """
    from policy_engine.settings import load

    settings = load(overrides, file=config).settings
    refuse_no_estate(settings.estate_dir)
    state = StateFolder.prepare(settings.state)
    lock = UpLock(state)
    lock.acquire()
    says = Says(sys.stdout)
    log_to(state.folder("logs"), "up", settings.log_level)
    up = Up(settings, state, says, allow_faults=allow_faults)
    try:
        return up.run()
    except Exception as error:  # the edge of the program: a line for a person, the rest in the log
        return says.failed(error, state)
    finally:
        up.end()
        state.endpoints.unlink(missing_ok=True)
        lock.release()


def refuse_no_estate(folder: Path | None) -> None:
    """Refuse a folder of declared resources that is not there, before anything is made or started.

    Raises:
        SettingsError: See above.
    """
    if folder is not None and not folder.is_dir():
        fix = "name the folder with your YAML files: --estate FOLDER; leave it out for the example"
        raise SettingsError(f"there is no folder of declared resources at {folder} (estate_dir)", fix=fix)


class Says:
    """What `up` prints: short lines for a person. Everything else goes to the log."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._stopping = False

    def stopping(self) -> None:
        """Said once; safe in a signal handler, which may interrupt a line that is being written."""
        if not self._stopping:
            self._stopping = True
            text = f"  {time.monotonic() - self._began:5.1f} s  stopping\n"
            with contextlib.suppress(OSError, ValueError):
                os.write(self._out.fileno(), text.encode())

    def step(self, text: str) -> None:
        """One line with the seconds since the start."""
        self.line(f"  {time.monotonic() - self._began:5.1f} s  {text}")

    def line(self, text: str = "") -> None:
        """One line."""
        with contextlib.suppress(OSError):
            self._out.write(text + "\n")
            self._out.flush()

    def failed(self, error: Exception, state: StateFolder) -> int:
        """Say what stopped the start, and what to do; the details are in the log."""
        what, fix = in_words(error)
        self.line(f"error: {what}")
        for problem in getattr(error, "problems", ())[:PROBLEMS_SHOWN]:
            self.line(f"  {problem}")
        self.line(f"  fix: {fix or 'see the log'}")
        self.line(f"  log: {state.folder('logs') / 'up.log'}")
        from evidence.logs import get_logger

        get_logger("policy_engine.up").exception("up_failed", error=type(error).__name__)
        return 1


class Up:
    """The main thread's part of one `up`."""

    def __init__(self, settings: Any, state: StateFolder, says: Says, *, allow_faults: bool) -> None:
        self.settings, self.state, self.says, self.allow_faults = settings, state, says, allow_faults
        self.stop = Stop()
        self.bao: Any = None
        self.processes: Any = None
        self.database: Any = None
        self.loop: Any = None
        self.contact = Contact()
        self._away = False

    def run(self) -> int:
        """Start, watch, stop."""
        self.stop.on_signals(self.says.stopping)
        for step in (self._begin, self._serve, self._link, self._greet):
            if self.stop.is_set():
                return 0
            step()
        return self._watch()

    # --- start ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        from policy_engine.embedded.begin import Beginning

        begin = self.beginning = Beginning(self.settings, self.state, allow_faults=self.allow_faults)
        self.bao, self.processes = begin.bao, begin.processes
        self.bao.halted = self.stop.is_set
        begin.spawn()
        self.says.line(f"Sluicegate on {self.state.root}")
        import policy_engine.embedded.looped  # noqa: F401 - seconds of imports, while others start

        begin.wait_processes()
        self.database = begin.database

    def _serve(self) -> None:
        from policy_engine.embedded.looped import LoopThread

        self.says.step("OpenBao is active (raft, TLS, audit); database and fork server are ready")
        self.contact.answered()
        self.loop = LoopThread(self.beginning.parts(self.describe, self.contact))
        self.loop.start()
        self.says.step("control plane listens")

    def _link(self) -> None:
        begin = self.beginning
        begin.start_links()
        self.contact.answered()  # it provisioned them
        adopted = len(self.processes.adopted)
        self.says.step("agents and data planes run" + (f" ({adopted} adopted)" if adopted else ""))
        begin.write_endpoints()

    def _greet(self) -> None:
        """Wait until the links are open (or say what they wait for), then say where things are."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.stop.is_set() and time.monotonic() < deadline:
            waiting = self.loop.waiting_links()
            if not waiting:
                break
            self._look()
            self.stop.wait(0.1)
        if self.stop.is_set():
            return
        waiting = self.loop.waiting_links()
        keyed = len(self.loop.links())
        if waiting:
            self.says.step(f"{keyed - len(waiting)} of {keyed} links are open; `sluicegate links --why NAME`")
        else:
            self.says.step(f"{keyed} links keyed, proved encrypted and open")
        host, ports = self.settings.host, self.loop.ports()
        self.says.line()
        self.says.line(f"  API and its documentation  https://{host}:{ports['api']}/docs")
        self.says.line(f"  admission webhook          https://{host}:{ports['admission']}/admit/CLUSTER")
        self.says.line(f"  authority of both          {self.state.folder('tls') / 'ca.crt'}")
        self.says.line(f"  first API token            {self.state.folder('tokens') / 'admin.token'}")
        self.says.line("  custody                    embedded (not separated); evidence self-asserted")
        if self.allow_faults:
            self.says.line("  faults                     ENABLED: this system is for demonstration only")
        for warning in self.loop.unapproved():
            self.says.line(f"  warning                    {warning}")
        self.says.line()
        self.says.line("  next: sluicegate links          posture, keys and gate of every link")
        self.says.line("        sluicegate rotate LINK    rotate one now")
        self.says.line("        sluicegate status         where everything is")
        self.says.line("  Ctrl-C stops everything.")

    # --- watch ------------------------------------------------------------------------------------------

    def _watch(self) -> int:
        while not self.stop.wait(WATCH_SECONDS):
            self._look()
            failed = self.loop.failure()
            if failed is not None:
                raise StartError(f"a part of the control plane failed: {failed}", fix="see the log")
        return 0

    def _look(self) -> None:
        """Restart what died. A key store that does not come back leaves links up on their keys."""
        self.processes.keep()
        away = self._key_store()
        if bool(away) != self._away:
            from evidence.logs import get_logger

            log = get_logger("policy_engine.up")
            if away:
                log.warning("key_store_away", reason=away)
            else:
                log.info("key_store_active")
        self._away = bool(away)

    def _key_store(self) -> str:
        """Look after the key store; why it is away, or nothing. One that only hangs is left alone.

        What waits for it must not keep the processes of the links waiting.
        """
        from keymgmt.errors import KeymgmtError

        try:
            if self.bao.look():
                self.contact.answered()
                return ""
            self.contact.failed("its process starts, or does not answer")
        except (KeymgmtError, OSError) as error:
            self.contact.failed(str(error) if isinstance(error, KeymgmtError) else type(error).__name__)
        return self.contact.away

    def describe(self) -> Mapping[str, Any]:
        """Processes and key store, for status."""
        return {
            "key_store": f"away: {away}" if (away := self.contact.away) else "active",
            "key_store_answered_s_ago": round(self.contact.age_seconds, 1),
            "state": str(self.state.root),
            "processes": {**self.processes.pids, "openbao": self.bao.pid or 0, "up": os.getpid()},
            "restarts": dict(self.processes.restarts),
            "adopted": list(self.processes.adopted),
        }

    def end(self) -> None:
        """End what runs, however far it came, in an order in which nothing is cut off from what it needs."""
        if self.loop is not None:
            self.says.stopping()
            self.loop.stop()
        if self.processes is not None:
            self.processes.stop()
        if self.bao is not None:
            self.bao.stop()
        if self.database is not None:
            self.database.stop()
        with contextlib.suppress(OSError):
            self.state.clear_short_sockets()
