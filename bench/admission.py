"""Decisions per second of the webhook on one core, each durable before its answer, against a real OPA server.

Webhook: TLS with the API server's client certificate, real spool (one fdatasync per group of decisions,
records counted afterwards), the shipped bundle. Peer: `opa run --server` (TLS, GOMAXPROCS=1, decision log
off) with bench/admission_peer.rego, written independently: it gets the raw AdmissionReview and must give the
same verdict on every one. Second peer: the same OPA with our rules on ready-made facts and context.

Servers are pinned to core 0, the client to core 1; 16 keep-alive connections; interleaved rounds; medians.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _admission_load as load
import _admission_mix as mix
from _admission_server import CLUSTER, ROOT, parts, postures

from evidence import spoolfile
from policy_engine.context import context
from policy_engine.embedded.ca import Authority
from policy_engine.facts import NoLookup, facts
from policy_engine.rules.engine import engine_input
from policy_engine.rules.opa import binary

CONNECTIONS, ROUNDS, REVIEWS, GOAL = 16, 5, 512, 2.0
SERVER_CORE, CLIENT_CORE = 0, 1


def certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """One CA; the server's pair in `folder`; a client context with, and one without, a certificate."""
    now = dt.datetime.now(dt.UTC)
    authority = Authority.open(folder, "bench", now)
    authority.server("server", ("localhost",), now)
    client = authority.client("apiserver", now)
    plain = ssl.create_default_context(cafile=str(authority.ca_file))
    mutual = ssl.create_default_context(cafile=str(authority.ca_file))
    mutual.load_cert_chain(client.cert, client.key)
    return mutual, plain


def peer_data(resources: Any) -> dict[str, Any]:
    """The estate as data of the peer's policy: what an OPA beside one cluster would be given."""
    cluster = resources.clusters[CLUSTER]
    links = {
        name: {
            "encryption": link.encryption,
            "state": "none",
            "posture": "unknown",
            "reason": "never keyed",
            "since": 0,
            "fresh_until": 0,
        }
        for name, link in resources.links.items()
    }
    for name, posture in postures(resources).items():
        links[name] |= {"state": posture.state, "posture": posture.posture, "reason": posture.reason}
        links[name] |= {"fresh_until": posture.fresh_until_ns}
    flows: dict[str, dict[str, list[str]]] = {}
    for flow in resources.flows.values():
        flows.setdefault(flow.from_, {})[flow.to] = list(flow.links)
    return {
        "estate": {
            "cluster": {"site_label": cluster.site_label, "site_labels": dict(cluster.site_labels)},
            "bindings": {
                b.namespace: {
                    "tenant": b.tenant,
                    "regions": list(b.regions),
                    "datasets": list(b.datasets),
                    "segments": list(b.segments),
                    "undeclared": b.undeclared,
                }
                for b in resources.bindings.values()
                if b.cluster == CLUSTER
            },
            "tenants": {t.name: {"jurisdictions": list(t.jurisdictions)} for t in resources.tenants.values()},
            "sites": {
                s.name: {"region": s.region, "jurisdiction": s.jurisdiction} for s in resources.sites.values()
            },
            "datasets": {
                d.name: {"sites": list(d.sites), "regions": list(d.regions)}
                for d in resources.datasets.values()
            },
            "segments": {s.name: {"site": s.site, "dataset": s.dataset} for s in resources.segments.values()},
            "flows": flows,
            "links": links,
        }
    }


def our_inputs(resources: Any, bodies: list[bytes]) -> list[bytes]:
    """Facts, context and now of each review, made beforehand: what OPA would get from our host."""
    out, links, lookup, now = [], postures(resources), NoLookup(), time.time_ns()
    for body in bodies:
        found = facts(json.loads(body)["request"], lookup, cluster=CLUSTER)
        out.append(engine_input(found, context(found, resources, links), now).body)
    return out


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def process(
    command: list[str], environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A child on the server's core; ended when the block ends."""
    child = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, {SERVER_CORE}),  # noqa: PLW1509 - one thread here
    )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    """Until a port accepts."""
    for _ in range(600):
        if child.poll() is not None:
            raise RuntimeError(f"a server ended while it started: {child.args!r}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("a server did not accept in time")


@contextlib.contextmanager
def opa(folder: Path, *arguments: str) -> Iterator[tuple[int, int]]:
    """A real OPA server; its port and process."""
    port = free_port()
    tls = [f"--tls-cert-file={folder / 'server.crt'}", f"--tls-private-key-file={folder / 'server.key'}"]
    command = [
        str(binary()),
        "run",
        "--server",
        f"--addr=127.0.0.1:{port}",
        "--log-level=error",
        "--skip-version-check",
    ]
    with process([*command, *tls, *arguments], {"GOMAXPROCS": "1"}) as child:
        wait_for(port, child)
        yield port, child.pid


@contextlib.contextmanager
def webhook(folder: Path) -> Iterator[tuple[int, int]]:
    """The webhook in a process of its own; its port and process."""
    with process([sys.executable, str(ROOT / "bench/_admission_server.py"), str(folder)]) as child:
        for _ in range(600):
            if (folder / "port").exists() and (text := (folder / "port").read_text()):
                break
            if child.poll() is not None:
                raise RuntimeError("the webhook ended while it started")
            time.sleep(0.05)
        yield int(text), child.pid


def cpu_seconds(pid: int) -> float:
    """CPU time that a server has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def frames(folder: Path) -> int:
    """Decisions in the spool now, read from its files."""

    spool = folder / "spool" / "bench"
    return sum(
        sum(1 for _ in spoolfile.frames(spoolfile.path_of(spool, first).read_bytes(), first))
        for first in spoolfile.segments(spool)
    )


def machine() -> str:
    """What was measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), model)
    kernel = f"{platform.system()} {platform.release()}"
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {kernel}"


def main() -> None:
    """Measure and print; the last line is the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="per server and round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=("webhook",), help="no peers, no ratio")
    options = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-bench-"))
    try:
        measure(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """All rounds."""
    mutual, plain = certificates(folder)
    resources, bundle, engine = parts()
    engine.close()
    made = mix.reviews(REVIEWS)
    bodies, allowed = [body for body, _ in made], [want.startswith("allow") for _, want in made]
    inputs = our_inputs(resources, bodies)
    (folder / "data.json").write_text(json.dumps(peer_data(resources)))
    sources = folder / "rules"
    for name, text in bundle.sources.items():
        if name.endswith(".rego"):
            path = sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    with contextlib.ExitStack() as stack:
        port, pid = stack.enter_context(webhook(folder))
        pids = {"webhook": pid}
        requests = [load.request(f"/admit/{CLUSTER}?timeout=10s", body, port) for body in bodies]
        yes, no = b'"allowed":true', b'"allowed":false'
        targets = [load.Target("webhook", port, mutual, requests, allowed, yes, no)]
        if options.only is None:
            policy = (str(ROOT / "bench/admission_peer.rego"), str(folder / "data.json"))
            port, pids["OPA, raw review"] = stack.enter_context(opa(folder, *policy))
            raw = [load.request("/", body, port) for body in bodies]
            targets.append(load.Target("OPA, raw review", port, plain, raw, allowed, yes, no))
            port, pids["OPA, our facts"] = stack.enter_context(opa(folder, str(sources)))
            ready = [load.request("/v0/data/sluicegate/main/result", body, port) for body in inputs]
            targets.append(
                load.Target("OPA, our facts", port, plain, ready, allowed, b'"violations":[]', b'"rule":')
            )
        for target in targets:  # every verdict of every server, compared one by one
            _, answers = load.drive(target, connections=CONNECTIONS, seconds=None, count=REVIEWS)
            assert len(answers) == REVIEWS
        rates: dict[str, list[float]] = {target.name: [] for target in targets}
        cpu: dict[str, list[float]] = {target.name: [] for target in targets}
        before, answered = frames(folder), 0.0
        for _ in range(options.rounds):
            for target in targets:
                used = cpu_seconds(pids[target.name])
                rate, _ = load.drive(target, connections=CONNECTIONS, seconds=options.seconds)
                cpu[target.name].append((cpu_seconds(pids[target.name]) - used) / (rate * options.seconds))
                rates[target.name].append(rate)
                answered += rate * options.seconds if target.name == "webhook" else 0
        recorded = frames(folder) - before
    report(rates, cpu, bodies, recorded, answered)


def report(
    rates: dict[str, list[float]],
    cpu: dict[str, list[float]],
    bodies: list[bytes],
    recorded: int,
    answered: float,
) -> None:
    """Both sides, the machine, the ratio."""
    middle = {name: statistics.median(values) for name, values in rates.items()}
    print(machine())
    size = statistics.mean(len(body) for body in bodies)
    print(f"{len(bodies)} reviews of {size:.0f} octets, {CONNECTIONS} connections, one core for the server")
    for name, values in rates.items():
        each = statistics.median(cpu[name]) * 1e6
        spread = f"{min(values):.0f}-{max(values):.0f}"
        print(f"{name:<16} {middle[name]:>7.0f} decisions/s  (rounds {spread}), {each:.0f} us of CPU each")
    print(f"records made durable: {recorded}, answered: about {answered:.0f}")
    if recorded < answered * 0.98:
        raise SystemExit("fewer records than answers")
    if "OPA, raw review" in middle:
        print(f"against OPA on our facts: {middle['webhook'] / middle['OPA, our facts']:.2f}")
        print(f"goal: at least {GOAL}, against OPA on the raw review")
        print(f"ratio={middle['webhook'] / middle['OPA, raw review']:.2f}")


if __name__ == "__main__":
    main()
