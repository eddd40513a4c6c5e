"""The conductor: a level-triggered loop per link over journal and acknowledgements (rotation.md section 4).

One pass reads the link's rows, feeds what agents and key store answered into the pure machine, writes the new
state with the operations it orders and the records that evidence it in one transaction, and only then acts.
It holds no state of its own that matters: killed anywhere, the next pass (of this process or of another one
that took the lease) continues from the journal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from evidence.database import Database
from evidence.errors import EvidenceError
from evidence.logs import get_logger
from keymgmt import conductor_rules as rules
from keymgmt import rotation_sak
from keymgmt.bell import Bell
from keymgmt.checks import take
from keymgmt.custody import LinkKeys
from keymgmt.errors import KeymgmtError, RotationRefused, StaleLease
from keymgmt.evidencing import drafts
from keymgmt.journal import Journal
from keymgmt.journal_rows import Loaded, OpEntry, Request, Save
from keymgmt.key_steps import KeySteps
from keymgmt.lease import Lease, Term
from keymgmt.limits import LIMITS, Limits
from keymgmt.linkstatus import LinkStatus, Presence, describe, view_of
from keymgmt.model import LinkSpec, partners
from keymgmt.operations import PARAMS, OpKind
from keymgmt.rotation import (
    Command,
    Rotation,
    Table,
    begin,
    outstanding,
    tick,
    wakes_ns,
    with_outcome,
)
from keymgmt.scheduler import View, Wait, decide

log = get_logger("keymgmt.conductor")
_MOST_PASSES: Final = 24  # steps that one wake-up may walk without giving others a turn


class Conductor:
    """Rotates every keyed link. Run it in any number of replicas: the lease lets one act."""

    def __init__(
        self,
        *,
        database: Database,
        links: Callable[[], Mapping[str, LinkSpec]],
        keys: LinkKeys,
        presence: Presence,
        bell: Bell,
        holder: str = "",
        clock: Callable[[], int] = time.time_ns,
        limits: Limits = LIMITS,
        table: Table = rotation_sak.TABLE,
        on_change: Callable[[str, Rotation], None] | None = None,
    ) -> None:
        self._links = links
        self._key_steps = KeySteps(keys)
        self._presence = presence
        self._bell = bell
        self._clock = clock
        self._limits = limits
        self._table = table
        self._on_change = on_change
        # The owner's name stays over restarts, the holder's does not: no two terms share (token, holder).
        self.holder = f"{holder or 'conductor-' + secrets.token_hex(8)}/{secrets.token_hex(8)}"
        self.journal = Journal(database, time_to_act_ms=limits.time_to_act_ms)
        ttl_ns = limits.lease_ttl_ms * 1_000_000
        self._lease = Lease(database, holder=self.holder, ttl_ns=ttl_ns, clock=clock)
        self.term: Term | None = None
        self._adopted = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # --- running ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lead when the lease is free, for ever; returns only when cancelled, giving the lease back."""
        try:
            while True:
                try:
                    await self._lead_once()
                except (KeymgmtError, EvidenceError) as error:
                    log.warning("conductor_waits", reason=str(error), fix=error.fix)
                await asyncio.sleep(self._limits.lease_renew_ms / 1000)
        finally:
            await self._stop()
            if self.term is not None:
                await self._give_back(self.term)

    async def _give_back(self, term: Term) -> None:
        """So that a successor need not wait; a lease that is not given back expires by itself."""
        try:
            await self._lease.release(term)
        except EvidenceError as error:
            log.warning("lease_not_given_back", reason=str(error), fix=error.fix)

    async def _lead_once(self) -> None:
        """Take or renew the lease, adopt what an earlier term left, keep one task per link."""
        if self.term is None:
            await self.lead()
        else:
            try:
                self.term = await self._lease.renew(self.term)
            except StaleLease:
                await self._stop()
                self.term = None
                raise
        if self.term is not None:
            await self._adopt()
            self._keep_tasks()

    async def lead(self) -> bool:
        """Try to become the conductor; True when it leads now."""
        self.term = await self._lease.take()
        if self.term is None:
            return False
        await self._adopt()
        return True

    async def _adopt(self) -> None:
        """Once per token, repeated until it succeeds: the hub hands out only what this token ordered."""
        term = self._term()
        if self._adopted == term.token:
            return
        adopted = await self.journal.adopt(term)
        self._adopted = term.token
        log.info("conductor_leads", token=term.token, adopted=adopted)

    def _keep_tasks(self) -> None:
        wanted = {name for name, spec in self._links().items() if spec.keyed}
        for name in self._tasks.keys() - wanted:
            self._tasks.pop(name).cancel()
        for name in wanted:
            if name not in self._tasks or self._tasks[name].done():
                self._tasks[name] = asyncio.create_task(self._follow(name), name=f"link-{name}")

    async def _stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, link: str) -> None:
        """One link: look, act, wait for the next event or the next look."""
        while True:
            wait_ms = self._limits.reconcile_ms
            self._bell.clear(f"link:{link}")
            try:
                wait_ms = await self.reconcile(link)
            except StaleLease as error:
                log.warning("conductor_stale", link=link, reason=str(error))
                return
            except (KeymgmtError, EvidenceError) as error:
                log.warning("link_waits", link=link, reason=str(error), fix=error.fix)
            except Exception as error:
                # A bug on one link must stop neither the others nor the look that may repair it.
                log.exception("link_failed", link=link, error=type(error).__name__)
            await self._bell.wait(f"link:{link}", wait_ms / 1000)

    # --- one pass ---------------------------------------------------------------------------------------

    async def reconcile(self, link: str) -> int:
        """Bring one link as far as it can go now; returns how many milliseconds to wait for the next look.

        Raises:
            StaleLease: another conductor leads.
            KeymgmtError: the pass could not be made; nothing was lost.
        """
        for _ in range(_MOST_PASSES):
            wait_ms = await self._pass(link)
            if wait_ms > 0:
                return wait_ms
        return 1

    async def _pass(self, link: str) -> int:
        spec = self._links().get(link)
        if spec is None or not spec.keyed:
            return self._limits.reconcile_ms
        loaded = await self.journal.load(link)
        if loaded.open is None:
            return await self._maybe_start(spec, loaded)
        return await self._advance(spec, loaded, loaded.open)

    async def _maybe_start(self, spec: LinkSpec, loaded: Loaded) -> int:
        now = self._clock()
        decision = decide(spec, self._view(spec, loaded), now)
        if isinstance(decision, Wait):
            return self._limits.reconcile_ms
        asked = loaded.request.rotation if loaded.request is not None else None
        rotation = asked or secrets.token_hex(16)
        state = begin(
            spec,
            kind=rotation_sak.KIND,
            first=rotation_sak.FIRST,
            rotation=rotation,
            reason=decision.reason,
            now_ns=now,
        )
        try:
            await self._write(spec, loaded, None, state, request=asked)
        except RotationRefused:
            return self._limits.reconcile_ms  # the partner began between our look and our write
        return 0

    def _view(self, spec: LinkSpec, loaded: Loaded) -> View:
        return view_of(spec, loaded, self._presence, self._limits, partners(spec, self._links()))

    async def _advance(self, spec: LinkSpec, loaded: Loaded, state: Rotation) -> int:
        now = self._clock()
        owed = outstanding(state, spec, self._table, now)
        after = self._absorb(spec, loaded, state, owed, now)
        if after is state and await self._answer_refusals(loaded, state, owed):
            return self._limits.reconcile_ms
        if after is state:
            after = await self._custody(spec, state, owed)
        if after is not state or _missing(loaded, state, owed):
            await self._write(spec, loaded, state, after)
            return 0
        return self._until(spec, state, now)

    def _absorb(
        self, spec: LinkSpec, loaded: Loaded, state: Rotation, owed: Sequence[Command], now: int
    ) -> Rotation:
        """Feed every answered operation of the present step into the machine, then let time pass."""
        after = state
        for command in owed:
            entry = loaded.operations.get(state.command_id(command.slot))
            if entry is None or entry.status in {"pending", "cancelled"}:
                continue
            if rules.fenced_off(entry, self._term()):
                continue
            after = with_outcome(after, spec, self._table, command.slot, rules.outcome(entry), now)
            if after.serial != state.serial:
                return after
        return tick(after, spec, self._table, now)

    async def _answer_refusals(self, loaded: Loaded, state: Rotation, owed: Sequence[Command]) -> bool:
        """Order anew what an agent turned away unseen; of the present step only, never of one that was left.

        It may have seen a higher token or sequence than ours: the database was restored, or we are stale.
        Only the database says who leads; if that is still us, we continue above what it reported.
        """
        entries = (loaded.operations.get(state.command_id(command.slot)) for command in owed)
        refused = [e for e in entries if e is not None and rules.fenced_off(e, self._term())]
        if not refused:
            return False
        tokens = [rules.known(entry) for entry in refused if rules.code(entry) == rules.STALE]
        places = [rules.known(entry) for entry in refused if rules.code(entry) != rules.STALE]
        if tokens and max(tokens) >= self._term().token:
            self.term = await self._lease.raise_above(self._term(), max(tokens))
            await self._adopt()
            log.warning("fence_raised", link=state.link, rotation=state.rotation, above=max(tokens))
        if places:
            await self.journal.raise_sequence(self._term(), state.link, max(places))
        await self.journal.reopen(self._term(), [entry.op_id for entry in refused])
        for entry in refused:
            self._bell.ring(f"agent:{entry.agent}")
        return True

    async def _custody(self, spec: LinkSpec, state: Rotation, owed: Sequence[Command]) -> Rotation:
        """Make the key store's part of the present step; the journal already says that it was intended."""
        command = next((command for command in owed if command.side is None), None)
        if command is None:
            return state
        outcome = await self._key_steps.make(spec.name, command)
        now = self._clock()
        if outcome is None:
            return tick(state, spec, self._table, now)
        return with_outcome(state, spec, self._table, command.slot, outcome, now)

    async def _write(
        self,
        spec: LinkSpec,
        loaded: Loaded,
        before: Rotation | None,
        after: Rotation,
        request: str | None = None,
    ) -> None:
        """Journal first: state, operations, records, standing of the link; then wake who waits for them."""
        now = self._clock()
        orders = self._orders(spec, loaded, after, now)
        term = self._term()
        save = Save(
            state=after,
            entry=rules.standing(loaded.entry, after, self._limits, now),
            operations=orders,
            cancel=rules.cancelled(before, after, loaded),
            drafts=drafts(before, after, token=term.token, epoch=self._key_steps.epoch),
            request=request,
            purge="ciphertext" not in after.memo,
            apart=partners(spec, self._links()) if before is None else frozenset(),
        )
        await self.journal.save(term, save, now)
        for order in orders:
            self._bell.ring(f"agent:{order.agent}")
        if self._on_change is not None:
            self._on_change(spec.name, after)
        if before is None or before.step != after.step or after.end is not None:
            log.info("rotation_step", link=spec.name, rotation=after.rotation, step=after.step, end=after.end)

    def _orders(self, spec: LinkSpec, loaded: Loaded, state: Rotation, now: int) -> list[OpEntry]:
        orders = []
        for command in outstanding(state, spec, self._table, now):
            op_id = state.command_id(command.slot)
            if command.side is None or op_id in loaded.operations:
                continue
            take(dict(command.params), PARAMS[OpKind(command.kind)], f"operation {command.kind}")
            agent = spec.end(command.side).agent
            assert agent is not None
            orders.append(OpEntry(op_id, spec.name, agent, command.side, command.kind, command.params))
        return orders

    def _until(self, spec: LinkSpec, state: Rotation, now: int) -> int:
        due_ms = (wakes_ns(state, spec, self._table) - now) // 1_000_000 + 1
        most = 500 if self._key_steps.away(spec.name) else self._limits.reconcile_ms
        return max(20, min(due_ms, most)) if due_ms > 0 else most

    def _term(self) -> Term:
        if self.term is None:
            raise StaleLease("this conductor does not lead")
        return self.term

    # --- what others ask --------------------------------------------------------------------------------

    async def rotate(self, link: str, by: str) -> str:
        """Ask for a rotation of one link now; returns the id it will have.

        Raises:
            RotationRefused: unknown link, not keyed, or a rotation is open or asked for already.
        """
        spec = self._links().get(link)
        if spec is None or not spec.keyed:
            raise RotationRefused(f"link {link} is not a keyed link", fix="see `sluicegate links`")
        rotation = secrets.token_hex(16)
        if not await self.journal.ask(Request(rotation, link, by), self._clock()):
            why = f"a rotation of {link} is open or asked for already"
            raise RotationRefused(why, fix=f"sluicegate links --why {link}")
        self.wake(link)
        return rotation

    def wake(self, link: str) -> None:
        """Look at a link now."""
        self._bell.ring(f"link:{link}")

    async def status(self, link: str, recent: int = 5) -> LinkStatus:
        """One link as `links` shows it.

        Raises:
            RotationRefused: no such link.
        """
        spec = self._links().get(link)
        if spec is None:
            raise RotationRefused(f"no link named {link}", fix="see `sluicegate links`")
        loaded = await self.journal.load(link)
        past = await self.journal.recent(link, recent)
        now = self._clock()
        view = self._view(spec, loaded)
        return describe(spec, loaded, view, past, self._table, self._key_steps.away(link), now)


def _missing(loaded: Loaded, state: Rotation, owed: Sequence[Command]) -> bool:
    """True when a command of the present step is not journalled yet: a wait has ended."""
    return any(
        command.side is not None and state.command_id(command.slot) not in loaded.operations
        for command in owed
    )
