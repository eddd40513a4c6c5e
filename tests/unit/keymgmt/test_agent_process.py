"""Agents and data planes as processes: the dead man, outages, memory. The hub is a small TLS server here."""

from __future__ import annotations

import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from agent_rig import LINK, SCI, SocketLink
from agents_rig import FakeControl, identity
from gate_rig import Gate

from keymgmt.errors import ControlUnavailable, DriverUnavailable, SaidNo
from keymgmt.forkserver import ForkServer
from keymgmt.processes import Spawned, end, survivor

ARM_MS = 600


class Hub:
    """Serves one `FakeControl` over TLS. Leaves out client certificates and long polls beyond 0.2 s."""

    def __init__(self, control: FakeControl, folder: Path) -> None:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(context)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                doc = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("poll"):
                    time.sleep(0.2)
                try:
                    status, body = 200, control.post(self.path, doc)
                except ControlUnavailable:
                    status, body = 503, b"{}"
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Site:
    """End a of a link as processes of a fork server."""

    def __init__(self, folder: Path, forks: ForkServer) -> None:
        self.folder, self.gate, self.forks = folder, Gate(), forks
        self.gate.defaults = {"ttl_ms": 900, "max_hold_ms": 60_000, "arm_ms": ARM_MS}
        self.link = SocketLink(folder)
        self.driver = self.link.drivers["a"]
        self.control = FakeControl(self.gate, "a")
        self.hub = Hub(self.control, folder)
        identity(folder / "agent", f"{LINK}-a")
        self.processes: list[Spawned] = []

    def spawn(self, role: Any, config: dict[str, Any], name: str = "x") -> Spawned:
        record, log = self.record(role, name), self.folder / f"{role}-{name}.log"
        spawned = self.forks.spawn(role, name, config, record=record, log=log)
        self.processes.append(spawned)
        return spawned

    def record(self, role: str, name: str = "x") -> Path:
        return self.folder / f"{role}-{name}.json"

    def planes(self) -> dict[str, Spawned]:
        planes = {end_: self.spawn("dataplane", self.link.configs[end_], end_) for end_ in "ab"}
        for driver in self.link.drivers.values():
            until(lambda driver=driver: driver.read().secy_id)
        return planes

    def agent(self) -> Spawned:
        return self.spawn(
            "agent",
            {
                "name": f"{LINK}-a",
                "link": LINK,
                "endpoint": "a",
                "sci": SCI["a"],
                "peer_sci": SCI["b"],
                "control": self.link.configs["a"]["control"],
                "control_plane": {
                    "host": "127.0.0.1",
                    "port": self.hub.port,
                    "ca": str(self.folder / "ca.pem"),
                },
                "openbao": {"host": "127.0.0.1", "port": 9, "ca": str(self.folder / "ca.pem")},
                "bao": {"keys_mount": "links-e1"},
                "permit_roots": {name: key.hex() for name, key in self.gate.roots.items()},
                "folder": str(self.folder / "agent"),
                "timers": {"check_ms": 100, "clean_ms": 200, "permit_retry_ms": 200},
            },
        )

    def path(self) -> str:
        return self.driver.read().path

    def stop(self) -> None:
        for process in self.processes:
            end(process, 1.0)
        self.forks.exits()
        self.hub.stop()


def until(check: Callable[[], Any], limit_s: float = 8.0) -> float:
    """Wait until a check holds; return how long it took in seconds."""
    started = time.monotonic()
    while time.monotonic() - started < limit_s:
        try:
            if check():
                return time.monotonic() - started
        except DriverUnavailable:
            pass
        time.sleep(0.02)
    pytest.fail("not reached in time")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as folder:
        server = ForkServer.start(Path(folder) / "f.sock", Path(folder) / "fork.log")
        yield server
        server.stop()


@pytest.fixture
def site(forks: ForkServer) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as folder:
        site = Site(Path(folder), forks)
        try:
            yield site
        finally:
            site.stop()


def test_the_path_closes_within_arm_when_its_agent_stops_or_dies(site: Site) -> None:
    site.planes()
    site.link.rotate(0, "r0")
    agent = site.agent()
    until(lambda: site.path() == "open")
    os.kill(agent.pid, signal.SIGSTOP)
    assert until(lambda: site.path() == "closed") <= ARM_MS / 1000 + 0.15
    os.kill(agent.pid, signal.SIGCONT)
    until(lambda: site.path() == "open")
    os.kill(agent.pid, signal.SIGKILL)
    assert until(lambda: site.path() == "closed") <= ARM_MS / 1000 + 0.15
    until(lambda: not agent.alive())
    site.agent()  # a new life finds its data plane and its orders again
    until(lambda: site.path() == "open")
    assert {"agent/x": -signal.SIGKILL} == site.forks.exits()


def test_outages_of_control_plane_and_openbao_are_held_and_hold_ends(site: Site) -> None:
    site.gate.defaults |= {"ttl_ms": 400, "max_hold_ms": 1200}
    site.planes()
    site.link.rotate(0, "r0")
    site.agent()
    until(lambda: site.path() == "open")
    site.control.away = True
    away = time.monotonic()
    time.sleep(0.9)
    assert "open" == site.path()  # held
    until(lambda: site.path() == "closed")
    assert time.monotonic() - away <= 0.4 + 1.2 + 0.4
    site.control.away = False
    until(lambda: site.path() == "open")


def test_a_killed_data_plane_comes_back_without_keys_and_the_agent_says_so(site: Site) -> None:
    planes = site.planes()
    site.link.rotate(0, "r0")
    site.agent()
    until(lambda: site.path() == "open")
    before = site.driver.read().secy_id
    os.kill(planes["a"].pid, signal.SIGKILL)
    until(lambda: not planes["a"].alive())
    site.spawn("dataplane", site.link.configs["a"], "a")
    until(lambda: site.driver.read().secy_id != before)
    after = site.driver.read().secy_id
    until(lambda: any(s["secy_id"] == after for poll in site.control.polls for s in poll["samples"]))
    assert "closed" == site.path()


def test_agents_and_data_planes_outlive_the_fork_server_and_are_known_again(site: Site) -> None:
    shared = site.forks
    site.forks = ForkServer.start(site.folder / "f.sock", site.folder / "fork.log")
    site.planes()
    agent = site.agent()
    relay = site.spawn("relay", site.link.relay_config)
    with pytest.raises(SaidNo, match="already runs"):
        site.agent()
    site.forks.stop()
    until(lambda: not relay.alive())
    assert survivor(site.record("relay")) is None
    assert agent == survivor(site.record("agent"))
    assert {"a", "b"} == {s.name for e in "ab" if (s := survivor(site.record("dataplane", e)))}
    assert os.getsid(agent.pid) == agent.pid
    site.forks = shared
    end(agent)
    assert survivor(site.record("agent")) is None
    assert agent.nonce != site.agent().nonce


def test_a_killed_owner_takes_the_fork_server_along(site: Site) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom keymgmt.forkserver import ForkServer\n"
        "f = Path(sys.argv[1])\ns = ForkServer.start(f / 'g.sock', f / 'g.log')\n"
        "print(s.pid, flush=True)\ntime.sleep(60)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(site.folder)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]
    )


def test_an_agent_stays_small(site: Site) -> None:
    site.planes()
    site.link.rotate(0, "r0")
    agent = site.agent()
    until(lambda: site.path() == "open")
    status = Path(f"/proc/{agent.pid}/status").read_text()
    resident_kb = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident_kb < 60 * 1024
    assert "SIGKILL" not in (site.folder / "agent-x.log").read_text()


def test_an_agent_imports_no_web_framework_database_or_kms_client() -> None:
    code = (
        "import sys, keymgmt.agents.agent, keymgmt.agents.enrol, keymgmt.drivers.software_dataplane\n"
        "heavy = {'fastapi', 'sqlmodel', 'sqlalchemy', 'reportlab', 'hvac', 'pydantic', 'uvicorn', 'requests', 'typer'}\n"
        "print(sorted(heavy & {m.split('.')[0] for m in sys.modules}))\n"
        "print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert "[]" == out[0]
    assert int(out[1]) < 60 * 1024


def test_an_agent_without_identity_says_what_to_do(site: Site) -> None:
    (site.folder / "agent" / "identity").unlink()
    agent = site.agent()
    until(lambda: not agent.alive())
    assert "enrol it again" in (site.folder / "agent-x.log").read_text()


def test_a_bad_configuration_ends_with_its_reason_in_the_log(site: Site) -> None:
    process = site.spawn("dataplane", {"name": "x"})
    until(lambda: not process.alive())
    assert "KeyError" in (site.folder / "dataplane-x.log").read_text()
