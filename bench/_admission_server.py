"""The webhook under load for bench/admission.py: a process of its own, composed as production composes it.

python bench/_admission_server.py FOLDER      (ca.crt, server.crt, server.key; it writes `port` and the spool)
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from evidence.spool import Spool
from policy_engine.admission.app import AdmissionApp
from policy_engine.admission.deps import AdmissionDeps, Policy
from policy_engine.admission.identities import ClusterIdentity, Identities
from policy_engine.facts import NoLookup
from policy_engine.gate.posture import LinkPosture
from policy_engine.listeners import Listeners, ListenerSpec, settle_heap, stop_on_signals
from policy_engine.resources.load import load
from policy_engine.rules.bundle import shipped
from policy_engine.rules.wasm import WasmEngine
from policy_engine.tls_material import TlsFiles

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = "train-us"


def postures(resources: Any) -> dict[str, Any]:
    """Every keyed link open and encrypted, fresh for a day."""
    now = time.time_ns()
    return {
        name: LinkPosture("required", "open", "encrypted", "encrypted", now, now + 86_400 * 10**9, 1)
        for name, link in resources.links.items()
        if link.encryption == "required"
    }


def parts() -> tuple[Any, Any, Any]:
    """Resources of the example estate, the shipped bundle, its Wasm engine."""
    bundle = shipped()
    return load(ROOT / "deploy/examples/estate"), bundle, WasmEngine(bundle)


def serve(folder: Path) -> None:
    """The webhook, as production composes it, until SIGTERM. Writes its port into `folder`."""
    resources, bundle, engine = parts()
    policy, links, lookup = Policy(engine, bundle), postures(resources), NoLookup()
    identities = Identities([ClusterIdentity(CLUSTER, ((folder / "ca.crt").read_bytes(),))])
    scopes = {name: hashlib.sha256(name.encode()).hexdigest()[:32] for name in ("estate", *resources.tenants)}
    spool = Spool(folder / "spool", "bench")
    spool.start()

    async def main() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        app = AdmissionApp(
            AdmissionDeps(
                policy=lambda: policy,
                resources=lambda: resources,
                postures=lambda: links,
                lookup=lambda _cluster: lookup,
                identities=lambda: identities,
                scope_ids=scopes.__getitem__,
                spool=spool,
                boot_id="bench",
                clock=time.time_ns,
            )
        )
        files = TlsFiles(folder / "server.crt", folder / "server.key", identities.client_ca_pem)
        listeners = Listeners([ListenerSpec("admission", app, tls=files, client_cert="optional")])
        await listeners.start()
        (folder / "port").write_text(str(listeners.port("admission")))
        settle_heap()
        await listeners.serve_until(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    spool.stop()
    engine.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
