"""Chapters 1 and 2: the system starts; four jobs ask to run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policy_engine.demo.console import Story
from policy_engine.demo.memory import parents
from policy_engine.demo.stage import BARE_LINK, LINKS, WAYS, Stage, open_links

START_SECONDS: Final = 90.0
KEYED_SECONDS: Final = 60.0
# (file, cluster, what asks, the rule that must refuse it; empty: admitted)
REVIEWS: Final = (
    ("compliant", "train-us", "a training job reads what it was granted, over encrypted links", ""),
    ("region", "train-us", "a job could read a dataset from outside its region", "residency.region"),
    ("tenant-segment", "train-us", "a job names another tenant's segment", "tenancy.segment"),
    (
        "unencrypted-flow",
        "train-eu",
        "a job's data would take a link that is not encrypted",
        "encryption.link",
    ),
)


def start(story: Story, stage: Stage) -> None:
    """Start the system and wait until three links are keyed, proved and open."""
    story.chapter(
        1, "Start", "OpenBao, the control plane, and two agents at the ends of each of three links."
    )
    began = time.monotonic()
    stage.start()
    story.wait(
        "starting", lambda: (int(stage.is_up()), 1), timeout=START_SECONDS, tick=stage.check_alive, every=0.2
    )
    status = stage.api("/v1/status").body
    pids = status["processes"]
    story.check(
        parents().get(pids["openbao"]) == stage.pid
        and status["key_store"] == "active"
        and _bao_set_up(stage),
        "OpenBao is active as a child process: raft storage, TLS, audit log; its root token is gone",
        detail=str(status["key_store"]),
    )
    story.check(
        status["ledger"] == "appends",
        f"the control plane runs on SQLite: {_resources(stage)}",
        detail=str(status["ledger"]),
    )
    story.wait(
        "keying links",
        lambda: (open_links(stage), len(LINKS)),
        timeout=KEYED_SECONDS,
        tick=stage.check_alive,
        every=0.25,
    )
    took = time.monotonic() - began
    story.check(True, f"three links are keyed, proved encrypted by probes, and hold permits ({took:.1f} s)")
    bare = stage.link(BARE_LINK)
    story.check(
        not bare["keyed"] and bare["posture"]["posture"] == "unknown",
        f"the fourth, {BARE_LINK}, has no agents: it is never keyed and nothing is claimed of it",
        detail=str(bare.get("posture")),
    )
    clear = sum(stage.relay()[link][way]["clear"] for link in LINKS for way in WAYS)
    story.check(
        clear == 0,
        "the wire is a relay process that knows no keys: it has seen 0 clear frames since the start",
        detail=f"{clear} clear frames",
    )


def _bao_set_up(stage: Stage) -> bool:
    """Raft data and an audit log are there, and what is kept for unsealing holds no root token."""
    folder = stage.state / "openbao"
    kept = json.loads((folder / "unseal.json").read_text("utf-8"))
    audit = folder / "log" / "audit.log"
    return (folder / "data" / "raft").is_dir() and audit.stat().st_size > 0 and not kept.get("root_token")


def _resources(stage: Stage) -> str:
    found = stage.api("/v1/records?kind=bootstrap&limit=1").body["records"]
    if not found:
        return "declared state accepted"
    counts = found[0]["public"]["counts"]
    names = (("Site", "sites"), ("Cluster", "clusters"), ("Tenant", "tenants"), ("Link", "links"))
    return ", ".join(f"{counts[kind]} {name}" for kind, name in names)


def decide(story: Story, stage: Stage) -> None:
    """Send four AdmissionReviews and hold the answers against what they must be."""
    story.chapter(2, "Decide", "Four jobs ask to run. Each asks as its cluster's API server does, over TLS.")
    answers = []
    for file, cluster, text, rule in REVIEWS:
        response = stage.review(cluster, review(stage, file))
        answers.append(response)
        message = response.get("status", {}).get("message", "")
        if not rule:
            story.check(response["allowed"] is True, f"{text}: admitted", detail=message)
            continue
        refused = response["allowed"] is False and f"[{rule}]" in message
        story.check(refused, f"{text}: refused", detail=message or "admitted")
        story.quote(denial(message))
    ids = [_decision(response) for response in answers]
    story.wait("records", lambda: (_recorded(stage, ids), len(ids)), timeout=10, tick=stage.check_alive)
    story.check(
        True, "each answer was durable before it was given, and stands in its tenant's ledger by its id"
    )


def review(stage: Stage, name: str) -> dict[str, Any]:
    """One of the example reviews."""
    folder = Path(stage.endpoints["estate"]).parent / "reviews"
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return document


def denial(message: str) -> str:
    """The refusal without its first line, which carries the decision's id; the fix on a line of its own."""
    lines = "\n".join(message.splitlines()[1:]) or message
    return lines.replace(". Fix: ", ".\nFix: ")


def _decision(response: Mapping[str, Any]) -> str:
    found: Mapping[str, str] = response["auditAnnotations"]
    return next(value for name, value in found.items() if name.startswith("decision."))


def _recorded(stage: Stage, ids: Sequence[str]) -> int:
    """How many of these decisions stand in a ledger already."""
    seen: set[str] = set()
    for scope in stage.api("/v1/scopes").body["scopes"]:
        page = stage.api(f"/v1/records?kind=decision&scope={scope['name']}&limit=1000").body
        seen |= {record["public"]["decision_id"] for record in page["records"]}
    return len(seen & set(ids))
