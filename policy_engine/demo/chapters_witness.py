"""Chapter 5: logs come in, a package goes out, an auditor verifies it, three attacks fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policy_engine.demo.console import StepFailedError, Story
from policy_engine.demo.offline import OPENED
from policy_engine.demo.stage import Stage

TENANT: Final = "acme"
BEGIN_NS: Final = 1_740_787_200 * 10**9  # 2025-03-01: the example logs are of that month
JOB_SECONDS: Final = 60.0
Done = subprocess.CompletedProcess[str]
SAYS: Final = ("self-asserted", "custody: embedded (not separated)", "faults enabled")
# (file, what was done, the member at which verification must stop)
ATTACKS: Final = (
    ("flipped.zip", "one bit flipped in the middle", "flipped.zip"),
    ("other-key.zip", "the whole package signed again under another key", "signer.json"),
    (
        "changed-cell.zip",
        "one table cell changed and signed again with the real key",
        "tables/decisions.csv",
    ),
)


def witness(story: Story, stage: Stage, out: Path) -> Path:
    """Import, export, verify offline, attack. Returns the package's path."""
    story.chapter(
        5,
        "Witness",
        "What happened becomes evidence that an auditor can check without trusting anybody here.",
    )
    _import(story, stage)
    package = out / f"{TENANT}.zip"
    exported = _job(
        story,
        stage,
        "exporting",
        ["export", TENANT, str(BEGIN_NS), str(time.time_ns()), str(package), "demo"],
    )
    kib = package.stat().st_size // 1024
    story.check(
        kib > 0,
        f"a package for tenant {TENANT}: {kib} KiB, SHA-256 {exported['sha256']}",
    )
    trust = out / "trust.json"
    trust.write_bytes((stage.state / "trust.json").read_bytes())
    _verify(story, stage, package, trust)
    _attacks(story, stage, package, trust, out)
    return package


def _import(story: Story, stage: Stage) -> None:
    folder = Path(stage.endpoints["estate"]).parent / "logs"
    told = _job(story, stage, "importing", ["import", str(folder)])
    for one in told["imported"]:
        story.check(
            one["rows"] > 0,
            f"{one['source']}: {one['lines']} lines, {one['rows']} rows, {one['duplicates']} duplicate, "
            f"{one['quarantined']} unreadable and set aside; committed by the root over the rows",
        )
    for scope, counts in sorted(told["attribution"].items()):
        if scope == TENANT:
            text = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
            story.check(bool(counts), f"accesses of {scope} mapped to jobs: {text}")


def _verify(story: Story, stage: Stage, package: Path, trust: Path) -> None:
    done = _offline(story, stage, "verifying", package, trust)
    story.check(
        done.returncode == 0,
        "verified in another process with every socket refused, the trust root given from outside",
        detail=_first(done),
    )
    lines = done.stdout.strip().splitlines()[:4]
    for line in lines:
        story.quote(line.strip())
    story.check(
        all(word in "".join(lines[:1]) for word in SAYS),
        "it says of itself what it does not prove: not anchored outside, one host, faults allowed",
        detail=_first(done),
    )


def _attacks(story: Story, stage: Stage, package: Path, trust: Path, out: Path) -> None:
    folder = out / "attacks"
    folder.mkdir(exist_ok=True)
    arguments = ["-m", "policy_engine.demo.attacks", str(stage.state), str(package), str(folder)]
    made = _run(story, stage, "attacking", arguments)
    story.check(
        made.returncode == 0, "three attacks are made on copies of it", detail=_first(made), fatal=True
    )
    for name, text, member in ATTACKS:
        done = _offline(story, stage, f"verifying {name}", folder / name, trust)
        refused = re.match(rf"NOT VERIFIED: step \d+: {re.escape(member)}\b", _first(done)) is not None
        story.check(
            done.returncode not in (0, OPENED) and refused,
            f"{text}: refused",
            detail="verified" if done.returncode == 0 else _first(done),
        )
        story.quote(_first(done))


def _offline(story: Story, stage: Stage, text: str, package: Path, trust: Path) -> Done:
    """`sluicegate evidence verify` where no socket can be opened, with an environment of its own."""
    arguments = ["evidence", "verify", str(package), "--trust", str(trust)]
    environ = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "200", "LANG": "C.UTF-8"}
    return _run(story, stage, text, ["-m", "policy_engine.demo.offline", *arguments], environ)


def _job(story: Story, stage: Stage, text: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """Run the evidence job in a process that ends.

    Raises:
        StepFailedError: It did not do its work; the message says why.
    """
    module = "policy_engine.embedded.evidence_job"
    done = _run(story, stage, text, ["-m", module, str(stage.state), *arguments])
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise StepFailedError(f"{text}: {_first(done)}") from None
    if "error" in told:
        raise StepFailedError(f"{text}: {told['error']}")
    return told


def _run(
    story: Story, stage: Stage, text: str, arguments: Sequence[str], environ: Mapping[str, str] | None = None
) -> Done:
    """Run this Python with arguments, with a bar while it works."""
    done: list[Done] = []

    def run() -> None:
        done.append(
            subprocess.run(
                [sys.executable, *arguments],
                capture_output=True,
                text=True,
                timeout=JOB_SECONDS,
                check=False,
                env=environ,
            )
        )

    thread = threading.Thread(target=run, name="demo-job")
    thread.start()
    story.wait(text, lambda: (len(done), 1), timeout=JOB_SECONDS, tick=stage.check_alive)
    thread.join()
    return done[0]


def _first(done: Done) -> str:
    """The first line of what a process said that is no hint."""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(("fix", "hint"))), "no output")
