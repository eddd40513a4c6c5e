"""Chapter 4: the gate. Encryption is turned off, an agent is killed, the control plane goes silent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from policy_engine.demo.chapters_start import denial, review
from policy_engine.demo.console import StepFailedError, Story
from policy_engine.demo.stage import LINKS, WAYS, Meter, Stage, open_links

OFF_LINK: Final = "cw-gcp-1"
DEAD_LINK: Final = "gcp-aws-1"
QUIET_SECONDS: Final = 0.35  # no user frame for so long means closed: bursts come every 10 ms
SLACK_SECONDS: Final = 1.0  # detection and the demo's own looks


def gate(story: Story, stage: Stage) -> None:
    """Three ways in which a path must close."""
    story.chapter(
        4, "Gate", "A path is open only while recent evidence shows it encrypted. Three ways to lose that."
    )
    _encryption_off(story, stage)
    _agent_killed(story, stage)
    _control_away(story, stage)


def _encryption_off(story: Story, stage: Stage) -> None:
    agent = f"{OFF_LINK}-a"
    meter = Meter(stage)
    before = int(stage.plane(agent)["counters"]["guard.OutDropped"])
    began = time.monotonic()
    stage.fault(agent, "encrypt_off")
    closed = _until(stage, lambda: _path_closed(stage, (OFF_LINK,)), 10)
    took = time.monotonic() - began
    story.check(closed, f"encryption is turned off at {agent}: the path closes after {took:.1f} s")
    _until(stage, lambda: _violated(stage), 10)
    posture = stage.link(OFF_LINK)["posture"]
    response = stage.review("train-us", review(stage, "compliant"))
    message = response.get("status", {}).get("message", "")
    figures = meter.read()[OFF_LINK]
    dropped = int(stage.plane(agent)["counters"]["guard.OutDropped"]) - before
    story.check(
        figures["clear"] == 0 and figures["canary"] == 0 and dropped > 0,
        f"the guard kept {dropped} clear frames off the wire: 0 at the relay",
        detail=f"{figures['clear']} clear at the relay, {dropped} dropped by the guard",
    )
    story.check(
        posture["posture"] == "violation" and posture["state"] == "closed",
        f"the gate orders both ends closed: {posture['message'] or posture['reason']}",
        detail=f"{posture['posture']}, {posture['state']}: {posture['reason']}",
    )
    story.check(
        response["allowed"] is False and "[encryption.gate]" in message,
        "the job that was admitted before is refused over it, and told since when",
        detail=message or "admitted",
    )
    story.quote(denial(message))
    stage.fault(agent, "clear")
    began = time.monotonic()
    story.wait("reopening", lambda: (open_links(stage, (OFF_LINK,)), 1), timeout=30, tick=stage.check_alive)
    took = time.monotonic() - began
    again = stage.review("train-us", review(stage, "compliant"))
    story.check(
        again["allowed"] is True,
        f"after the repair is measured it reopens ({took:.1f} s) and the job is admitted again",
        detail=str(again.get("status", {}).get("message", "")),
    )


def _agent_killed(story: Story, stage: Stage) -> None:
    agent = f"{DEAD_LINK}-a"
    arm = stage.link(DEAD_LINK)["exposure_ms"]["agent_lost"] / 1000
    pid = stage.api("/v1/status").body["processes"][f"agent/{agent}"]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ended = _traffic_ends(stage, (DEAD_LINK,), arm + 3)
    took = ended - began
    story.check(
        ended > 0 and took <= arm + SLACK_SECONDS,
        f"kill -9 of the agent {agent}: the path closes by itself after {took:.1f} s (arm: {arm:.0f} s)",
        detail="traffic did not end" if not ended else f"{took:.1f} s",
    )
    story.wait(
        "agent comes back", lambda: (open_links(stage), len(LINKS)), timeout=40, tick=stage.check_alive
    )
    story.check(True, "the agent is restarted, adopts its data plane, and the path opens again")


def _control_away(story: Story, stage: Stage) -> None:
    bound = max(stage.link(name)["exposure_ms"]["control_lost"] for name in LINKS) / 1000
    story.say(
        f"the control plane is frozen (SIGSTOP); agents hold their paths for at most {bound:.0f} s:", "dim"
    )
    meter = Meter(stage)
    stage.signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        ended = _traffic_ends(stage, LINKS, bound + 5, story=story)
    finally:
        stage.signal(signal.SIGCONT)
    took = ended - began
    story.check(
        ended > 0 and took <= bound + SLACK_SECONDS,
        f"control plane away: all three paths are closed after {took:.1f} s (ttl + hold: {bound:.0f} s)",
        detail="traffic did not end" if not ended else f"{took:.1f} s",
    )
    story.wait(
        "control plane is back", lambda: (open_links(stage), len(LINKS)), timeout=40, tick=stage.check_alive
    )
    figures = meter.read()
    clear = sum(f["clear"] + f["canary"] for f in figures.values())
    story.check(
        clear == 0,
        "it comes back, permits flow, the paths open; still 0 clear frames at the relay",
        detail=f"{clear} clear frames",
    )


# --- how closing is seen: by the sinks, which believe nobody --------------------------------------------


def _received(stage: Stage, links: Iterable[str]) -> int:
    traffic = stage.traffic()
    return sum(int(traffic[link][way]["received"]) for link in links for way in WAYS)


def _traffic_ends(stage: Stage, links: Iterable[str], within: float, story: Story | None = None) -> float:
    """When the sinks of these links got their last frame (monotonic seconds); 0 when they still get some."""
    links = tuple(links)
    deadline = time.monotonic() + within
    last, since = _received(stage, links), time.monotonic()

    def look() -> tuple[int, int]:
        nonlocal last, since
        now = _received(stage, links)
        if now != last:
            last, since = now, time.monotonic()
        return int(time.monotonic() - since >= QUIET_SECONDS), 1

    if story is not None:
        try:
            story.wait("waiting for the paths to close", look, timeout=within, every=0.05)
        except StepFailedError:
            return 0.0
        return since
    while time.monotonic() < deadline:
        if look()[0]:
            return since
        time.sleep(0.05)
    return 0.0


def _path_closed(stage: Stage, links: Iterable[str]) -> bool:
    """Whether the data planes of both ends of these links say that the path is closed."""
    return all(stage.plane(f"{link}-{side}")["path"] == "closed" for link in links for side in "ab")


def _violated(stage: Stage) -> bool:
    posture: Any = stage.link(OFF_LINK).get("posture", {})
    return bool(posture.get("posture") == "violation" and posture.get("state") == "closed")


def _until(stage: Stage, holds: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if holds():
            return True
        stage.check_alive()
        time.sleep(0.05)
    return False
