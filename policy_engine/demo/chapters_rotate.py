"""Chapter 3: keys rotate under traffic, then two rotations go wrong on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.demo.console import Story
from policy_engine.demo.stage import LINKS, Meter, Stage, open_links

ROTATE_SECONDS: Final = 45.0
# Column -> steps of the protocol that it adds up.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "prepare": ("survey", "prepare", "mint", "wrap"),
    "install": ("install", "compare"),
    "destroy": ("destroy", "baseline"),
    "switch a": ("select a", "look b", "probe a", "verify b"),
    "switch b": ("select b", "look a", "probe b", "verify a"),
    "overlap": ("confirm", "overlap", "drain"),
    "retire": ("retire tx", "retire rx", "proof"),
}


def rotate(story: Story, stage: Stage) -> None:
    """Rotate every link under traffic; then provoke a wrong check value and a wrong key."""
    story.chapter(
        3,
        "Rotate",
        "New keys on every link, 250 numbered frames a second each way. Receive before transmit, "
        "confirm before retire.",
    )
    old = {name: stage.tx_key(f"{name}-a") for name in LINKS}
    meter = Meter(stage)
    ended = _rotate_all(story, stage, LINKS, "rotating three links")
    figures = meter.read()
    rows, steps = [], []
    for name in LINKS:
        f = figures[name]
        new = stage.tx_key(f"{name}-a")
        counts = [str(f[column]) for column in ("sent", "received", "lost", "clear")]
        rows.append([name, *counts, old[name][:8], new[:8], f"{_took(ended[name]):.1f} s"])
        steps.append([name, *_columns(ended[name])])
    story.table(["link", "sent", "received", "lost", "clear", "old key", "new key", "time"], rows)
    story.say("time of each step, in milliseconds (key ids above are of end a):", "dim")
    story.table(["link", *COLUMNS], steps)
    complete = all(state["end"] == "complete" for state in ended.values())
    changed = all(old[name] != stage.tx_key(f"{name}-a") for name in LINKS)
    lost = sum(f["lost"] for f in figures.values())
    clear = sum(f["clear"] + f["canary"] for f in figures.values())
    story.check(
        complete and changed,
        "every rotation is complete: both ends transmit under new keys, the old ones are deleted",
        detail=str({name: (state["end"], state["why"]) for name, state in ended.items()}),
    )
    story.check(lost == 0, "0 frames lost, by the numbers in the frames", detail=f"{lost} lost")
    story.check(clear == 0, "0 clear frames at the relay, the canary never seen", detail=f"{clear} clear")
    _faults(story, stage)


def _faults(story: Story, stage: Stage) -> None:
    """Both faults at once, on two links: neither touches the other."""
    story.say("")
    story.say("Two rotations go wrong on purpose:", "dim")
    differs, wrong = "cw-gcp-1", "gcp-aws-1"
    before = {name: stage.tx_key(f"{name}-a") for name in (differs, wrong)}
    stage.fault(f"{differs}-b", "wrong_check")
    stage.fault(f"{wrong}-b", "wrong_key", direction="rx")
    meter = Meter(stage)
    ended = _rotate_all(story, stage, (differs, wrong), "two faulty rotations")
    figures = meter.read()
    stage.fault(f"{differs}-b", "clear")
    stage.fault(f"{wrong}-b", "clear")
    after = {name: stage.tx_key(f"{name}-a") for name in (differs, wrong)}

    a, f = ended[differs], figures[differs]
    story.check(
        a["end"] == "rolled back" and after[differs] == before[differs],
        f"{differs}: the two ends' check values differ: abandoned before anything was switched",
        detail=f"{a['end']}: {a['why']}",
    )
    story.check(
        f["lost"] == 0 and f["clear"] == 0,
        f"{f['sent']} frames sent meanwhile, 0 lost, 0 clear",
        detail=f"{f['lost']} lost, {f['clear']} clear",
    )
    b, g = ended[wrong], figures[wrong]
    story.check(
        b["end"] == "rolled back" and after[wrong] == before[wrong],
        f"{wrong}: one data plane holds another key though its agent reports the right value: counters "
        "show it after the first direction's switch, rolled back",
        detail=f"{b['end']}: {b['why']}",
    )
    story.quote(str(b["why"]))
    story.check(
        g["lost a>b"] > 0 and g["lost b>a"] == 0 and g["clear"] == 0,
        f"{g['lost a>b']} of {g['sent']} frames lost, all in one direction; 0 clear",
        detail=f"lost a>b {g['lost a>b']}, b>a {g['lost b>a']}, clear {g['clear']}",
    )
    story.wait("links open", lambda: (open_links(stage), len(LINKS)), timeout=20, tick=stage.check_alive)
    story.check(True, "all links are up on their old keys")


def _rotate_all(story: Story, stage: Stage, links: tuple[str, ...], text: str) -> dict[str, Any]:
    """Ask for rotations and wait until each has ended; returns the last state of each."""
    asked = {name: _ask(stage, name) for name in links}
    ended: dict[str, Any] = {}

    def look() -> tuple[int, int]:
        for name, rotation in asked.items():
            for state in stage.link(name)["recent"]:
                if state["rotation"] == rotation and state["end"] is not None:
                    ended[name] = state
        return len(ended), len(asked)

    story.wait(text, look, timeout=ROTATE_SECONDS, tick=stage.check_alive, every=0.2)
    return ended


def _ask(stage: Stage, name: str) -> str:
    reply = stage.api(f"/v1/links/{name}/rotate", {})
    return str(reply.body["rotation"]) if reply.status == 202 else ""


def _took(state: Mapping[str, Any]) -> float:
    return float(sum(step["ms"] for step in state["steps"])) / 1000


def _columns(state: Mapping[str, Any]) -> list[str]:
    return [
        str(sum(step["ms"] for step in state["steps"] if step["step"] in names)) for names in COLUMNS.values()
    ]
