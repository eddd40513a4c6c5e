"""Answers an agent's pull: one transaction that locks the link's posture row, one signature after it.

The permit quotes the generation of the row and the sample that was judged in that transaction, and
its record stands in the same transaction: no order without its record, no record without its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from evidence import outbox
from keymgmt.errors import PermitRefused
from keymgmt.model import LinkSpec
from keymgmt.permit import Permit, PermitKind, issue
from keymgmt.permit_request import PermitRequest
from policy_engine.gate import rows
from policy_engine.gate.judged import Judged, order_record
from policy_engine.gate.loop import Gate, judge_stored
from policy_engine.gate.orders import NoOrder, Order, choose
from policy_engine.gate.posture import LinkView
from policy_engine.gate.signer import DelegatedSigner

_MS: Final = 1_000_000  # nanoseconds


class PermitIssuer:
    """`keymgmt.permit.PermitSource` of this control plane.

    Args:
        gate: Whose judgement counts.
        signer: The delegated signer in force; its epoch is the permits' epoch.
    """

    def __init__(self, gate: Gate, signer: Callable[[], DelegatedSigner]) -> None:
        self._gate = gate
        self._signer = signer

    async def answer(self, request: PermitRequest) -> bytes:
        """Answer one pull; certificate and sample are verified by the caller.

        Raises:
            PermitRefused: Not this agent's end, or nothing can be said to it yet (the text says why).
        """
        ports = self._gate.ports
        spec = ports.links().get(request.link)
        if spec is None or spec.side_of(request.agent) != request.endpoint:
            raise PermitRefused("this agent does not keep that end of that link")
        self._gate.on_sample(request.sample)
        track = self._gate.track(request.link, request.endpoint)
        if track is None or request.sample.seq < track.last.seq:
            raise PermitRefused("the sample is older than one already judged: ask again with a new one")
        now, view, signer = ports.clock(), self._gate.view(spec), self._signer()
        answer, judged = await ports.database.write(
            lambda conn: self._decide(conn, spec, view, request, now=now, signer=signer)
        )
        self._gate.keep(spec.name, judged)
        if isinstance(answer, NoOrder):
            raise PermitRefused(answer.why)
        return issue(answer, signer.statement, signer.sign)

    def _decide(
        self,
        conn: Connection,
        spec: LinkSpec,
        view: LinkView,
        request: PermitRequest,
        *,
        now: int,
        signer: DelegatedSigner,
    ) -> tuple[Permit | NoOrder, Judged]:
        """Inside the transaction: judge, choose, count, record."""
        judged = judge_stored(conn, spec, view, now, settled=self._gate.settled(now))
        sample = request.sample
        order = choose(
            judged.standing,
            judged.posture,
            judged.finding,
            spec.profile,
            now,
            end_closed=request.closed,
            end_proves=sample.protect and sample.encrypt and sample.tx_key_id is not None,
        )
        if isinstance(order, NoOrder):
            return order, judged
        permit, previous = self._permit(conn, spec, request, order, judged, signer=signer)
        draft = order_record(permit, previous, judged, now)
        if draft is not None:
            outbox.put(conn, draft, now_ns=now)
        return permit, judged

    def _permit(
        self,
        conn: Connection,
        spec: LinkSpec,
        request: PermitRequest,
        order: Order,
        judged: Judged,
        *,
        signer: DelegatedSigner,
    ) -> tuple[Permit, PermitKind | None]:
        epoch, seen = signer.epoch, request.last_order
        seq, previous = rows.next_order(conn, spec.name, request.endpoint, order.kind, epoch=epoch, seen=seen)
        permit = Permit(
            kind=order.kind,
            link=spec.name,
            endpoint=request.endpoint,
            epoch=epoch,
            seq=seq,
            nonce=request.nonce,
            boot_id=request.boot_id,
            secy_id=request.secy_id,
            ttl_ms=spec.profile.ttl_ns // _MS,
            max_hold_ms=order.hold_ms,
            arm_ms=spec.profile.arm_ns // _MS,
            posture_generation=judged.posture.generation,
            sample_digest=request.sample.digest(),
            violation_generation=request.sample.violation_generation,
            signer=signer.key_id,
            reason=order.reason,
        )
        return permit, previous
