"""A conductor over a real SQLite journal with modelled ends: no network, no OpenBao, a clock that tests move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modelled_ends import SECOND, A, B, make_link
from sqlalchemy import text
from world import World

from evidence.database import Database
from evidence.records import Draft
from keymgmt.bell import Bell
from keymgmt.conductor import Conductor
from keymgmt.custody import Destroyed, Wrapped
from keymgmt.errors import CustodyUnavailable
from keymgmt.model import LinkSpec
from keymgmt.operations import Ack, AckStatus
from keymgmt.rotation import Rotation


class FakeLinkKeys:
    """`LinkKeys` over the model's key store. Leaves out: rights, TLS, several links, real wrapping."""

    epoch = 1

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls: list[str] = []

    def rotate(self, link: str) -> int:
        self._up("rotate")
        return self._world.kms.mint()

    def wrapped(self, link: str, associated_data: bytes) -> Wrapped:
        self._up("wrapped")
        ciphertext, version = self._world.kms.wrap(json.loads(associated_data))
        return Wrapped(ciphertext, version)

    def destroy(self, link: str, version: int) -> Destroyed:
        self._up("destroy")
        self._world.kms.destroy(version)
        return Destroyed(version, self._world.kms.available, self._world.kms.latest)

    def read_epoch(self) -> int:
        return self.epoch

    def _up(self, call: str) -> None:
        self.calls.append(call)
        if not self._world.kms.up:
            raise CustodyUnavailable("sealed")


class FakePresence:
    """All agents polled just now, samples show the modelled SecYs."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def last_seen_ns(self, agent: str) -> int | None:
        side = self._rig.link.side_of(agent)
        return self._rig.world.now if side and self._rig.world.ends[side].up else None

    def secy_of(self, link: str, endpoint: str) -> str | None:
        return f"{endpoint}{self._rig.world.ends[endpoint].secy}"


class Rig:
    def __init__(self, folder: Path, **profile: Any) -> None:
        self.link: LinkSpec = make_link(**profile)
        self.world = World(self.link)
        self.database = Database(folder / "test.db")
        self.database.start()
        self.database.create_all()
        self.bell = Bell()
        self.keys = FakeLinkKeys(self.world)
        self.conductor = self.make_conductor("first")
        self.tokens: dict[str, tuple[int, str]] = {}

    def make_conductor(self, holder: str) -> Conductor:
        return Conductor(
            database=self.database,
            links=lambda: {self.link.name: self.link},
            keys=self.keys,
            presence=FakePresence(self),
            bell=self.bell,
            holder=holder,
            clock=lambda: self.world.now,
        )

    def stop(self) -> None:
        self.database.stop()

    async def turn(self) -> None:
        """One fair round: conduct, deliver, acknowledge, traffic, time."""
        await self.conductor.reconcile(self.link.name)
        for side in (A, B):
            await self.serve(side)
        self.world.traffic()
        self.world.now += SECOND // 4

    async def serve(self, side: str) -> None:
        """What hub and agent do: take pending operations, act behind the fence, report."""
        end, agent = self.world.ends[side], self.link.end(side).agent or ""
        if not end.up:
            return
        acks = []
        for op in await self.conductor.journal.pending(agent, "00" * 16, 8):
            status, result, why = self._fenced(side, op.token, op.holder) or end.run(op.to_json())
            error = {"code": why.split(":")[0], "detail": why} if why else None
            acks.append(Ack(op.op_id, op.op_seq, op.token, AckStatus(status), "boot", result, error))
        await self.conductor.journal.acknowledge(agent, acks, self.world.now)

    def _fenced(self, side: str, token: int, holder: str) -> tuple[str, dict[str, Any], str] | None:
        known, who = self.tokens.get(side, (0, ""))
        if token < known or (token == known and holder != who):
            return "refused", {"last": known}, "stale_token"
        self.tokens[side] = (token, holder)
        return None

    async def until_end(self, turns: int = 600) -> Rotation:
        """Run until a rotation that is open (or starts) has ended."""
        before = {state.rotation for state in await self.ended()}
        for _ in range(turns):
            await self.turn()
            fresh = [state for state in await self.ended() if state.rotation not in before]
            if fresh:
                return fresh[0]
        raise AssertionError(f"no end: {(await self.conductor.status(self.link.name)).why}")

    async def ended(self) -> list[Rotation]:
        recent = await self.conductor.journal.recent(self.link.name, 50)
        return [state for state in recent if state.end is not None]

    async def keyed(self) -> Rotation:
        if self.conductor.term is None:
            assert await self.conductor.lead()
        return await self.until_end()

    def rows(self, sql: str) -> list[Any]:
        return list(self.database.read_sync(lambda conn: conn.execute(text(sql)).all()))

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Kind and public body of everything in the outbox, in order."""
        from evidence.records import decode_frame

        found = []
        for (frame,) in self.rows("SELECT frame FROM outbox_entry ORDER BY id"):
            parts = decode_frame(frame)
            found.append((str(parts.header_fields()["kind"]), parts.public_fields()))
        return found


__all__ = ["Draft", "FakeLinkKeys", "FakePresence", "Rig"]
