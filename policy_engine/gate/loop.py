"""The gate's loop: takes in samples, judges every link, serves postures to admission.

In memory stand the newest sample of each end (`gather.EndTrack`) and the last judgement of each link,
which admission reads without IO. In the database stand the posture row and the order that stands;
every judgement that changes anything goes on from the *stored* row, in one transaction, so that the
loop and the pulls (`gate.permits`) cannot overtake each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection

from evidence import outbox
from evidence.database import Database
from evidence.logs import get_logger
from keymgmt.model import LinkSpec
from keymgmt.samples import Sample
from policy_engine.gate import rows
from policy_engine.gate.gather import EndTrack, KeyState, fold, link_view, report
from policy_engine.gate.judged import Judged, assess, differs, turning_points
from policy_engine.gate.orders import Standing
from policy_engine.gate.posture import (
    NO_AGENTS,
    NOT_REQUIRED,
    Finding,
    LinkPosture,
    LinkView,
    as_of,
    check_samples,
)

STEP_SECONDS: Final = 0.25
SETTLE_NS: Final = 10 * 1_000_000_000  # after a start: agents reconnect within their longest retry
NEVER_STALE: Final = 2**62  # what is declared does not age
log = get_logger("policy_engine.gate")


@dataclass(frozen=True, slots=True)
class GatePorts:
    """What the gate needs from the rest.

    Attributes:
        database: Where its rows and the outbox are.
        links: The keyed links by name, as declared now.
        bare: Names of declared links that nothing keys, with their declared encryption.
        keys: The journal's word on a link.
        clock: Wall clock in nanoseconds.
    """

    database: Database
    links: Callable[[], Mapping[str, LinkSpec]]
    bare: Callable[[], Mapping[str, str]]
    keys: Callable[[str], KeyState]
    clock: Callable[[], int]


class Gate:
    """One per control plane. Use from one event loop."""

    def __init__(self, ports: GatePorts) -> None:
        self.ports = ports
        self._tracks: dict[tuple[str, str], EndTrack] = {}
        self._judged: dict[str, Judged] = {}
        self._started_ns = ports.clock()
        self._postures: Mapping[str, LinkPosture] = MappingProxyType({})
        self._published_s = time.monotonic()

    def postures(self) -> Mapping[str, LinkPosture]:
        """Posture of every declared link: what the admission context carries. No IO."""
        return self._postures

    def age_seconds(self) -> float:
        """How old `postures` is: the loop makes it anew each `STEP_SECONDS` while it works."""
        return time.monotonic() - self._published_s

    def judged(self, link: str) -> Judged | None:
        """The last judgement of a keyed link."""
        return self._judged.get(link)

    def shown(self, link: str) -> tuple[LinkPosture, Finding | None] | None:
        """What admission goes by at this moment, and the finding behind it; None before a judgement."""
        posture, now = self._postures.get(link), self.ports.clock()
        if posture is None:
            return None
        told, judged, spec = as_of(posture, now), self._judged.get(link), self.ports.links().get(link)
        if judged is None or spec is None or told.posture == "encrypted":
            return told, None
        finding = judged.finding if told.reason == posture.reason else check_samples(self.view(spec), now)
        just_come = "a fresh sample has come; it is judged within a moment"
        return told, finding or Finding(told.reason, "unknown", just_come)

    def track(self, link: str, endpoint: str) -> EndTrack | None:
        """The newest sample of one end, with what follows from the ones before."""
        return self._tracks.get((link, endpoint))

    def on_sample(self, sample: Sample) -> None:
        """Take in a verified sample; the next step judges it."""
        if sample.link not in self.ports.links():
            return
        key = (sample.link, sample.endpoint)
        keyed = self.ports.keys(sample.link).keyed
        self._tracks[key] = fold(self._tracks.get(key), sample, self.ports.clock(), keyed=keyed)

    def on_violation(self, link: str, endpoint: str, code: str) -> None:
        """Take in a violation that an agent confirmed itself."""
        track = self._tracks.get((link, endpoint))
        if track is not None and self.ports.keys(link).keyed:
            self._tracks[link, endpoint] = report(track, code)

    async def load(self) -> None:
        """Read the stored rows: after a restart a close still stands, and `since` goes on."""
        names = list(self.ports.links())
        found = await self.ports.database.read(lambda conn: {name: rows.read(conn, name) for name in names})
        self._judged = {name: judged for name, judged in found.items() if judged is not None}
        self._publish(self.ports.clock())

    async def run(self) -> None:
        """Judge every link each `STEP_SECONDS` until cancelled; a failure is logged when it begins.

        Whatever fails is outlived: pulls judge each link by themselves, postures that nobody renews grow
        stale, which refuses new work and readiness. Ending the control plane would end every path.
        """
        failing = ""
        while True:
            try:
                await self.step()
                failing = ""
            except Exception as error:
                if type(error).__name__ != failing:
                    failing = type(error).__name__
                    log.exception("gate_step_failed", error=failing)
            await asyncio.sleep(STEP_SECONDS)

    async def step(self) -> None:
        """Judge every link once; store those whose verdict, state or standing changed."""
        now = self.ports.clock()
        changed: list[tuple[LinkSpec, LinkView]] = []
        for name, spec in self.ports.links().items():
            view, before = self.view(spec), self._judged.get(name)
            after = assess(spec, view, before, now, settled=self.settled(now))
            if differs(before, after):
                changed.append((spec, view))
            else:
                self._judged[name] = after
        if changed:
            stored = await self.ports.database.write(
                lambda conn: [
                    judge_stored(conn, spec, view, now, settled=self.settled(now)) for spec, view in changed
                ]
            )
            for (spec, _), judged in zip(changed, stored, strict=True):
                self.keep(spec.name, judged)
        self._publish(now)

    def settled(self, now: int) -> bool:
        """Whether agents have had time to speak since this gate's start."""
        return now - self._started_ns >= SETTLE_NS

    def view(self, spec: LinkSpec) -> LinkView:
        """What is known of a link now."""
        tracks = (self._tracks.get((spec.name, "a")), self._tracks.get((spec.name, "b")))
        return link_view(spec, self.ports.keys(spec.name), tracks)

    def keep(self, link: str, judged: Judged) -> None:
        """Remember a stored judgement unless a later one is here already."""
        have = self._judged.get(link)
        if have is None or judged.posture.generation >= have.posture.generation:
            self._judged[link] = judged

    def _publish(self, now: int) -> None:
        """Swap the mapping that admission reads: closed by order reads as closed whatever the ends say."""
        made: dict[str, LinkPosture] = {}
        for name, judged in self._judged.items():
            posture, standing = judged.posture, judged.standing
            made[name] = replace(posture, state="closed") if standing.closed else posture
        for name, encryption in self.ports.bare().items():
            old = self._postures.get(name)
            declared: Any = encryption
            made[name] = LinkPosture(
                encryption=declared,
                state="none",
                posture="unknown",
                reason=NOT_REQUIRED if encryption == "none" else NO_AGENTS,
                since_ns=old.since_ns if old is not None else now,
                fresh_until_ns=NEVER_STALE,
                generation=1,
            )
        self._postures = MappingProxyType(made)
        self._published_s = time.monotonic()

    def standing(self, link: str) -> Standing:
        """The order that stands for a link."""
        judged = self._judged.get(link)
        return judged.standing if judged is not None else Standing()


def judge_stored(
    conn: Connection, spec: LinkSpec, view: LinkView, now: int, *, settled: bool = True
) -> Judged:
    """Judge from the stored row and store the result, with its records, in the caller's transaction."""
    before = rows.read(conn, spec.name)
    after = assess(spec, view, before, now, settled=settled)
    rows.write(conn, spec.name, after, now, exists=before is not None)
    for draft in turning_points(spec.name, before, after, now):
        outbox.put(conn, draft, now_ns=now)
    return after
