"""A running system for integration tests: the demo's, with quick restarts."""

import os
import sys
import time

from policy_engine.demo.console import StepFailedError
from policy_engine.demo.stage import LINKS, Stage, open_links

QUICK = {"SLUICEGATE_AGENT_RESTART_SECONDS": "3", "SLUICEGATE_VERDICT_SECONDS": "5"}


def wait(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except StepFailedError:
            raise
        except Exception as error:
            last = error
        else:
            last = None
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}" + (f" ({last!r})" if last else ""))


class Running(Stage):
    """A system whose data planes accept faults, as the demo's, with quick restarts."""

    def __init__(self, root, **environ):
        super().__init__(root / "s", root / "up.log")
        self.environ = {**os.environ, **QUICK, **environ}

    def start(self):
        self.run(sys.executable, "-m", "policy_engine.demo.system", str(self.state))

    def run(self, *command, **how):
        self.endpoints = {}
        (self.state / "run" / "endpoints.json").unlink(missing_ok=True)
        self._process = self.spawn(*command, env=self.environ, **how)
        wait(self.answers, 60, "the API answers")

    def answers(self):
        self.check_alive()
        return self.is_up()

    def all_open(self, seconds=60):
        wait(lambda: open_links(self) == len(LINKS), seconds, "all links open")

    def kill(self):
        """As a power cut would: what has a session of its own lives on."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()
        self._process.kill()
        self._process.wait()

    def processes(self):
        return self.api("/v1/status").body["processes"]
