"""The running system as the demo sees it: one subprocess, and doors that any user has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from policy_engine.demo.client import DoorClosedError, Https, Reply, ask_socket
from policy_engine.demo.console import StepFailedError
from policy_engine.demo.memory import PeakMemory, tree

LINKS: Final = ("cw-gcp-1", "cw-aws-1", "gcp-aws-1")
BARE_LINK: Final = "gcp-aws-legacy"
WAYS: Final = ("a>b", "b>a")
STOP_SECONDS: Final = 40.0
Json = Mapping[str, Any]


class Stage:
    """Starts, asks and stops the system."""

    def __init__(self, state: Path, log: Path) -> None:
        self.state = state
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._doors: dict[str, Https] = {}
        self.endpoints: dict[str, Any] = {}
        self.memory = PeakMemory({os.getpid()})

    # --- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the system's process; `is_up` says when it answers."""
        self._process = self.spawn(sys.executable, "-m", "policy_engine.demo.system", str(self.state))
        self.memory.roots.add(self._process.pid)
        self.memory.start()

    def spawn(self, *command: str, **how: Any) -> subprocess.Popen[bytes]:
        """Run a command that reads nothing and says everything into the log."""
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **how)

    @property
    def pid(self) -> int:
        """Process id of the control plane."""
        assert self._process is not None
        return self._process.pid

    def check_alive(self) -> None:
        """Raise when the system has ended.

        Raises:
            StepFailedError: Its last words are in the message.
        """
        if self._process is not None and self._process.poll() is not None:
            last = self._log.read_text("utf-8", "replace").strip().splitlines()[-3:]
            raise StepFailedError("the system ended: " + " | ".join(last))

    def is_up(self) -> bool:
        """Whether it wrote where it listens and its API answers."""
        file = self.state / "run" / "endpoints.json"
        if not file.exists():
            return False
        self.endpoints = json.loads(file.read_text("utf-8"))
        try:
            return self.api("/v1/status").status == 200
        except DoorClosedError:
            return False

    def family(self) -> set[int]:
        """Every process of the system: descendants, and those with a session of their own."""
        return tree([self.pid])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the control plane's process."""
        os.kill(self.pid, number)

    def stop(self) -> set[int]:
        """Stop it as Ctrl-C would; returns the processes that are still there (none, it is hoped)."""
        if self._process is None:
            return set()
        for door in self._doors.values():
            door.close()
        family = self.family()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        time.sleep(0.2)
        return {pid for pid in family if _alive(pid)}

    # --- doors ------------------------------------------------------------------------------------------

    def api(self, path: str, body: Any = None) -> Reply:
        """Ask the API: GET, or POST when there is a body."""
        door = self._doors.get("api")
        if door is None:
            token = Path(self.endpoints["token_file"]).read_text("utf-8").strip()
            door = Https(_address(self.endpoints["api"]), Path(self.endpoints["ca"]), token=token)
            self._doors["api"] = door
        return door.get(path) if body is None else door.post(path, body)

    def link(self, name: str) -> dict[str, Any]:
        """One link as the API shows it."""
        reply = self.api(f"/v1/links/{name}")
        if reply.status != 200:
            raise DoorClosedError(f"link {name}: status {reply.status}")
        told: dict[str, Any] = reply.body
        return told

    def review(self, cluster: str, review: Json) -> dict[str, Any]:
        """Send an AdmissionReview as the cluster's API server, with its client certificate."""
        door = self._doors.get(cluster)
        if door is None:
            pair = self.endpoints["clusters"][cluster]
            client = (Path(pair["cert"]), Path(pair["key"]))
            door = Https(_address(self.endpoints["admission"]), Path(self.endpoints["ca"]), client=client)
            self._doors[cluster] = door
        reply = door.post(f"/admit/{cluster}", review)
        if reply.status != 200:
            raise DoorClosedError(f"admission: status {reply.status}")
        answer: dict[str, Any] = reply.body["response"]
        return answer

    def relay(self) -> dict[str, Any]:
        """What the relay saw, per link and direction."""
        return dict(self._ask("relay", {"cmd": "stats"})["links"])

    def traffic(self) -> dict[str, Any]:
        """What generator and sinks counted, per link and direction."""
        return dict(self._ask("traffic", {"cmd": "stats"})["links"])

    def hush(self, *, quiet: bool) -> None:
        """Stop or resume sending, so that nothing is on its way while figures are read."""
        self._ask("traffic", {"cmd": "pause" if quiet else "resume"})

    def fault(self, agent: str, name: str, **params: Any) -> Json:
        """Inject a fault into a data plane (`clear` ends all)."""
        path = Path(self.endpoints["data_planes"][agent])
        message = {"cmd": "fault", "name": name, "params": params}
        return dict(_ok(ask_socket(path, message)))

    def plane(self, agent: str) -> dict[str, Any]:
        """Read a data plane back: configuration, path, counters. Never a key."""
        path = Path(self.endpoints["data_planes"][agent])
        return dict(_ok(ask_socket(path, {"cmd": "read"})))

    def tx_key(self, agent: str) -> str:
        """Id of the key that an end transmits with, by its data plane's own word; empty when it has none."""
        return next((str(sa["key_id"]) for sa in self.plane(agent)["tx"]["sas"] if sa["in_use"]), "")

    def _ask(self, door: str, message: Json) -> Any:
        return _ok(ask_socket(Path(self.endpoints[door]), message))


class Meter:
    """Exact figures of one stretch of traffic: quiet at both ends, so that nothing is on its way."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._traffic, self._relay = self._read()

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._stage.hush(quiet=True)
        time.sleep(0.15)
        found = self._stage.traffic(), self._stage.relay()
        self._stage.hush(quiet=False)
        return found

    def read(self) -> dict[str, dict[str, int]]:
        """Per link: sent, received, lost (in all and per way), clear frames and canaries on the wire."""
        traffic, relay = self._read()
        made: dict[str, dict[str, int]] = {}
        for link in LINKS:
            row = {"sent": 0, "received": 0, "clear": 0, "canary": 0, "wire": 0}
            for way in WAYS:
                now, was = traffic[link][way], self._traffic[link][way]
                seen, saw = relay[link][way], self._relay[link][way]
                sent, received = now["sent"] - was["sent"], now["received"] - was["received"]
                row["sent"] += sent
                row["received"] += received
                row[f"lost {way}"] = sent - received
                row["clear"] += seen["clear"] - saw["clear"]
                row["canary"] += seen["canary_seen"] - saw["canary_seen"]
                row["wire"] += seen["frames"] - saw["frames"]
            row["lost"] = row["sent"] - row["received"]
            made[link] = row
        return made


def open_links(stage: Stage, links: Iterable[str] = LINKS) -> int:
    """How many of these links are proved encrypted and open."""
    count = 0
    for name in links:
        posture = stage.link(name).get("posture", {})
        count += (posture.get("posture"), posture.get("state")) == ("encrypted", "open")
    return count


def _ok(answer: Any) -> Any:
    if "error" in answer:
        raise DoorClosedError(str(answer["error"].get("detail", "refused")))
    return answer["ok"]


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("https://").rpartition(":")
    return host, int(port)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
