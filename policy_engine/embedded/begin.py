"""The beginning of an `up`: certificates, processes, key store, links, in the order that costs least time."""

from __future__ import annotations

import datetime as dt
import errno
import json
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from evidence import durable
from keymgmt.openbao import OpenBaoChild, ServerTls
from policy_engine.embedded.ca import Authority, Pair
from policy_engine.embedded.contact import Contact
from policy_engine.embedded.processes import Processes, Wanted
from policy_engine.embedded.schema import Migration
from policy_engine.embedded.state import StateFolder, read_kept
from policy_engine.errors import StartError

LISTENERS: Final = ("admission", "api", "agents")
CERT_ROLE: Final = "agent"
_EXAMPLE_WHEEL: Final = Path(__file__).resolve().parent.parent / "_data" / "examples" / "estate"
_EXAMPLE_SOURCE: Final = Path(__file__).resolve().parent.parent.parent / "deploy" / "examples" / "estate"


def example_estate() -> Path:
    """The example estate: in the wheel, or in the source tree."""
    return _EXAMPLE_WHEEL if _EXAMPLE_WHEEL.is_dir() else _EXAMPLE_SOURCE


class Beginning:
    """Call `spawn`, then import what is heavy, then the rest in order of definition."""

    def __init__(self, settings: Any, state: StateFolder, *, allow_faults: bool) -> None:
        self.settings, self.state, self.allow_faults = settings, state, allow_faults
        self.folder = (settings.estate_dir or example_estate()).absolute()
        now = dt.datetime.now(dt.UTC)
        self._authority = Authority.open(state.folder("tls"), "Sluicegate embedded CA", now)
        hosts = tuple(dict.fromkeys((settings.host, "127.0.0.1", "localhost")))
        self._tls: dict[str, Pair] = {
            name: self._authority.server(name, hosts, now) for name in (*LISTENERS, "openbao")
        }
        pair = self._tls["openbao"]
        self.bao = OpenBaoChild(
            state.folder("openbao"), ServerTls(pair.cert, pair.key, self._authority.ca_file)
        )
        self.processes = Processes(
            state.folder("run"),
            state.folder("logs"),
            state.sockets(),
            {"agent": settings.agent_restart_seconds},
        )
        self._ports = self._kept_ports()
        self.database: Any = None
        self._parts: Any = None

    def spawn(self) -> None:
        """Start OpenBao, fork server and migration; return at once."""
        self.bao.spawn()
        self._migration = Migration(self.state.database)
        aside = ThreadPoolExecutor(1, thread_name_prefix="fork-server-start")
        self._fork = aside.submit(self.processes.start_server)
        aside.shutdown(wait=False)

    def wait_processes(self) -> None:
        """Wait for all three.

        Raises:
            StartError: One did not start.
        """
        from evidence.database import Database

        self.bao.wait_active()
        self._migration.wait()
        self._fork.result()
        self.database = Database(self.state.database)
        self.database.start()

    def parts(self, describe: Callable[[], Mapping[str, Any]], contact: Contact) -> Any:
        """Everything that the event loop needs: declared state read, key store open, ports known."""
        from keymgmt.provision import open_embedded
        from policy_engine.embedded.system import Parts
        from policy_engine.resources.load import load

        resources = load(self.folder)
        self._keystore = open_embedded(self.bao)
        self._parts = Parts(
            settings=self.settings,
            state=self.state,
            ports=self._ports,
            tls=self._tls,
            database=self.database,
            keystore=self._keystore,
            resources=resources,
            estate_folder=str(self.folder),
            describe=describe,
            contact=contact,
            allow_faults=self.allow_faults,
        )
        return self._parts

    def _kept_ports(self) -> dict[str, int]:
        """Ports of the listeners: as set, or (0) free ones that this state folder keeps: agents know them.

        Raises:
            StartError: One cannot be listened on; nothing has been started yet.
        """
        file = self.state.folder("run") / "ports.json"
        kept = read_kept(file)
        ports = {}
        for name in LISTENERS:
            wanted = int(getattr(self.settings, f"{name}_port"))
            ports[name] = wanted or kept.get(name) or _free_port(self.settings.host)
            refuse_taken(self.settings.host, ports[name], name, kept=None if wanted else file)
        durable.replace(file, (json.dumps(ports).encode(),))  # half a file would stop the next start
        return ports

    # --- links ------------------------------------------------------------------------------------------

    def start_links(self) -> None:
        """Provision links, enrol agents that are not, start or adopt every process of the links."""
        from keymgmt.provision import OpenBaoProvisioner
        from policy_engine.embedded.custody import PermitStore
        from policy_engine.embedded.enrolment import enrol_all
        from policy_engine.embedded.estate import keyed_links
        from policy_engine.embedded.wiring import load_or_make

        links = keyed_links(self._parts.resources)
        sessions = {name: self._keystore.session(name) for name in ("provisioner", "enroller", "gate")}
        provisioner = OpenBaoProvisioner(
            sessions["provisioner"], sessions["enroller"], epoch=self._keystore.epoch
        )
        root_id, root = PermitStore(sessions["gate"]).root()
        requests = []
        for spec in links.values():
            agents = [end.agent for end in (spec.a, spec.b) if end.agent]
            missing = [agent for agent in agents if not (self._agent_folder(agent) / "identity").exists()]
            if missing:
                provisioner.add_link(spec.name, (agents[0], agents[1]))
            requests += [self._enrolment(provisioner.enrol(agent, spec.name)) for agent in missing]
        enrol_all(requests)
        for session in sessions.values():
            session.close()
        self.wiring = load_or_make(
            self.state.folder("run") / "wiring.json", self.state.sockets(), sorted(links)
        )
        self.processes.want(self._wanted(links, {root_id: root.hex()}))

    def _enrolment(self, enrolment: Any) -> dict[str, Any]:
        return {
            **self._server(self.bao.port),
            "paths": self._bao_paths(),
            "name": enrolment.agent,
            "role_id": enrolment.role_id,
            "wrapping_token": enrolment.wrapped_secret_id,
            "folder": str(self._agent_folder(enrolment.agent)),
        }

    def _wanted(self, links: Mapping[str, Any], roots: Mapping[str, str]) -> list[Wanted]:
        names = sorted(links)
        wanted = [
            Wanted("relay", "relay", self.wiring.relay(names)),
            Wanted(
                "traffic",
                "traffic",
                self.wiring.traffic(names, sending=self.settings.traffic, fps=self.settings.traffic_fps),
            ),
        ]
        for spec in links.values():
            for side in ("a", "b"):
                agent = spec.end(side).agent
                plane = self.wiring.data_plane(spec, side, allow_faults=self.allow_faults)
                wanted.append(Wanted("dataplane", agent, plane))
                wanted.append(Wanted("agent", agent, self._agent(spec, side, roots)))
        return wanted

    def _agent(self, spec: Any, side: str, roots: Mapping[str, str]) -> dict[str, Any]:
        end, peer = spec.end(side), spec.peer(side)
        return {
            "name": end.agent,
            "link": spec.name,
            "endpoint": side,
            "sci": end.sci,
            "peer_sci": peer.sci,
            "control": self.wiring.control(end.agent),
            "control_plane": self._server(self._ports["agents"]),
            "openbao": self._server(self.bao.port),
            "bao": self._bao_paths(),
            "folder": str(self._agent_folder(end.agent)),
            "permit_roots": dict(roots),
            "log_level": self.settings.log_level,
        }

    def _bao_paths(self) -> dict[str, str]:
        return {"keys_mount": f"links-e{self._keystore.epoch}", "cert_role": CERT_ROLE}

    def _server(self, port: int) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": port, "ca": str(self._authority.ca_file)}

    def _agent_folder(self, agent: str) -> Path:
        return self.state.folder("agents") / agent

    # --- where everything is ----------------------------------------------------------------------------

    def write_endpoints(self) -> None:
        """Write run/endpoints.json: addresses, files and sockets; no secret."""
        host, tls = self.settings.host, self.state.folder("tls")
        clusters = {
            folder.name: {
                "cert": str(folder / "kube-apiserver.crt"),
                "key": str(folder / "kube-apiserver.key"),
            }
            for folder in sorted((tls / "clusters").glob("*"))
        }
        document = {
            **{name: f"https://{host}:{port}" for name, port in self._ports.items()},
            "openbao": self.bao.url,
            "ca": str(self._authority.ca_file),
            "token_file": str(self.state.folder("tokens") / "admin.token"),
            "trust_file": str(self.state.root / "trust.json"),
            "clusters": clusters,
            "estate": str(self.folder),
            "relay": str(self.wiring.sockets / "relay.sock"),
            "traffic": str(self.wiring.sockets / "traffic.sock"),
            "data_planes": {
                wanted.name: wanted.config["control"]
                for wanted in self.processes.wanted()
                if wanted.role == "dataplane"
            },
        }
        durable.replace(self.state.endpoints, (json.dumps(document, indent=2).encode(),))


def refuse_taken(host: str, port: int, name: str, *, kept: Path | None = None) -> None:
    """Refuse a port that cannot be listened on, by its setting (or the file that keeps it).

    Raises:
        StartError: See above.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        where = f"setting {name}_port" if kept is None else f"kept in {kept}"
        fix = "stop who has it (`ss -ltnp` names it), or " + (
            f"set SLUICEGATE_{name.upper()}_PORT, or use --ports auto"
            if kept is None
            else "remove that file: free ones are taken then"
        )
        if error.errno != errno.EADDRINUSE:
            fix = "set SLUICEGATE_HOST to an address of this machine, and a port that you may use"
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise StartError(f"port {port} on {host} {why} ({where})", fix=fix) from None


def _free_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port
