"""One real embedded OpenBao for the tests of a session, with TLS of a throw-away CA."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import trustme

from keymgmt.bao import Address
from keymgmt.openbao import OpenBaoChild, ServerTls
from keymgmt.provision import KeyStore, OpenBaoProvisioner, open_embedded


def make_tls(folder: Path, ca: trustme.CA | None = None) -> ServerTls:
    folder.mkdir(parents=True, exist_ok=True)
    ca = ca or trustme.CA()
    cert = ca.issue_cert("127.0.0.1", "localhost")
    tls = ServerTls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    tls.cert_file.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    tls.key_file.write_bytes(cert.private_key_pem.bytes())
    ca.cert_pem.write_to_path(str(tls.ca_file))
    return tls


class Bao:
    """A running, provisioned store and sessions into it."""

    def __init__(self, folder: Path) -> None:
        self.child = OpenBaoChild(folder / "openbao", make_tls(folder / "tls"))
        self.child.start()
        self.root_token = self.child.secrets().root_token
        self.store: KeyStore = open_embedded(self.child)
        self.address = Address(self.child.url, self.child.tls.ca_file)

    def provisioner(self) -> OpenBaoProvisioner:
        return OpenBaoProvisioner(
            self.store.session("provisioner"), self.store.session("enroller"), epoch=self.store.epoch
        )

    def stop(self) -> None:
        self.child.stop()


def freeze(pid: int) -> None:
    """Stop a process and return when each of its threads stands still: the signal alone does not say so."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while any(_state(task) not in {"T", "Z"} for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
