"""One authenticated review, from its body to the bytes of its answer.

Order matters: the record is complete and durable before there is an answer, and the answer derives from what
was recorded. Failing to judge or to record is never an allow, but for the clean-up that `judge.fails_open`
names; such refusals are counted in memory and become one `decision_summary` record when the spool takes it.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Final

from evidence.errors import EvidenceError, SpoolUnwritable
from evidence.logs import get_logger
from evidence.records import SALTS_OCTETS, Draft, encode
from policy_engine.admission import protocol
from policy_engine.admission.deps import AdmissionDeps
from policy_engine.admission.durable import DurableQueue
from policy_engine.admission.identities import Caller
from policy_engine.admission.judge import Judged, fails_open, judge, line_of, only_failed, refusal_text
from policy_engine.admission.record import Sealed, seal
from policy_engine.admission.slices import Slices
from policy_engine.admission.tally import AdmissionMetrics, Unrecorded
from policy_engine.errors import BadReview, DecisionLate

log = get_logger("policy_engine.admission")

ESTATE: Final = "estate"
_SUMMARY_S: Final = 1.0  # seconds between attempts to write what was refused without a record
_FAILURES: Final = {
    "engine.overload": (429, "too many reviews at once: try again"),
    "engine.spool_unwritable": (
        503,
        "the decision cannot be recorded, so it is not given: free disk space of the webhook's spool",
    ),
    "engine.no_result": (503, "the decision was not ready in time or could not be made: try again"),
}


class ReviewHandler:
    """What all reviews share."""

    def __init__(self, deps: AdmissionDeps, metrics: AdmissionMetrics) -> None:
        self.deps = deps
        self.metrics = metrics
        self.unrecorded = Unrecorded()
        self.slices = Slices()
        self._queue: DurableQueue | None = None
        self._flushing = False
        self._flusher: asyncio.Task[None] | None = None

    @property
    def queue(self) -> DurableQueue:
        """The spool, seen from the running loop."""
        if self._queue is None:
            self._queue = DurableQueue(self.deps.spool)
        return self._queue

    def begin(self, caller: Caller, allowed_s: float) -> Handling:
        """Start the clock of one review."""
        return Handling(self, caller, time.perf_counter(), allowed_s)

    def count(self, caller: Caller, reason: str, late_id: str = "") -> None:
        """Note a refusal that has no record of its own."""
        self.metrics.refused[reason.removeprefix("engine.")] += 1
        self.unrecorded.add(caller.cluster, reason, self.deps.clock(), late_id)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_until_written(), name="decision-summary")

    async def _flush_until_written(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_S)
            if await self.flush_summary():
                return

    async def flush_summary(self) -> bool:
        """See `AdmissionApp.flush_summary`."""
        if not self.unrecorded.counts or self._flushing:
            return not self.unrecorded.counts
        self._flushing = True
        taken, self.unrecorded = self.unrecorded, Unrecorded()
        try:
            await self._append_summary(taken)
        except (EvidenceError, KeyError):
            self.unrecorded.merge(taken)
            return False
        finally:
            self._flushing = False
        return not self.unrecorded.counts

    async def _append_summary(self, taken: Unrecorded) -> None:
        spool = self.deps.spool
        draft = Draft("decision_summary", ESTATE, spool.spool_id, None, taken.public())
        seq = spool.next_seq
        record = encode(
            draft,
            scope_id=self.deps.scope_ids(ESTATE),
            source_seq=seq,
            boot_id=self.deps.boot_id,
            received_time_ns=self.deps.clock(),
            salts=os.urandom(SALTS_OCTETS),
        )
        # Without a deadline: given up and durable after all, it would count twice.
        await spool.append(seq, record.frame)


@dataclass(slots=True)
class Handling:
    """One review in progress: `take` it, wait for `durable`, `finish` it.

    Between the two it keeps the bytes of the answer and no object: what a decision allocates is freed while
    it is still in the processor's cache.
    """

    shared: ReviewHandler
    caller: Caller
    started: float  # time.perf_counter
    allowed_s: float
    durable: asyncio.Future[None] | None = None
    uid: str = ""
    operation: str = ""
    opens: bool = False  # an internal failure may let it pass
    ready: bytes = b""  # the answer, to be given once the record is durable
    allowed: bool = False
    failed_open: bool = False
    decision_id: str = ""

    def take(self, body: bytes | bytearray, *, overloaded: bool) -> bytes | None:
        """Decode, judge and hand the record to the spool.

        Returns:
            The bytes of the answer where there is no decision to wait for; else None, and `durable` is set.

        Raises:
            BadReview: No review, or one that cannot be walked.
        """
        # 4. Decode.
        review = protocol.parse(body)
        self.uid, self.operation = review.uid, review.operation
        deps = self.shared.deps
        # 5. Judge, and encode the record without awaiting in between: its number is the spool's next.
        try:
            self.opens = fails_open(review)
            if overloaded:
                return self._failed("engine.overload")
            if time.perf_counter() - self.started > self.allowed_s:
                return self._failed("engine.no_result")
            slices = self.shared.slices
            self._record(judge(review, self.caller.cluster, deps, deps.clock(), slices.of))
        except RecursionError:
            raise BadReview("the object is nested too deeply", uid=review.uid) from None
        except SpoolUnwritable:
            return self._failed("engine.spool_unwritable")
        except Exception as exc:
            # Type and place only: the text of a foreign exception may quote the object.
            log.error(  # noqa: TRY400
                "decision_failed", error=type(exc).__name__, at=place_of(exc), cluster=self.caller.cluster
            )
            return self._failed("engine.no_result")
        return None

    def finish(self) -> bytes:
        """The bytes of the answer, once `durable` has ended."""
        assert self.durable is not None
        # 6. Durable before answered: `result` raises where it is not.
        try:
            self.durable.result()
        except DecisionLate:
            return self._failed("engine.no_result", late_id=self.decision_id)
        except EvidenceError:
            return self._failed("engine.spool_unwritable")
        # 7. Answer.
        if self.failed_open:
            self.shared.metrics.failed_open[self.operation] += 1
        self._observe(self.allowed)
        return self.ready

    def _record(self, judged: Judged) -> None:
        deps, shared = self.shared.deps, self.shared
        spool = deps.spool
        seq = spool.next_seq
        sealed = seal(
            judged,
            self.caller,
            scope_id=deps.scope_ids(judged.scope),
            spool_id=spool.spool_id,
            seq=seq,
            boot_id=deps.boot_id,
            received_ns=judged.now_ns,
        )
        self.ready, self.allowed = _answer(judged, sealed), judged.decision.allowed
        self.failed_open, self.decision_id = judged.failed_open, sealed.decision_id
        left = self.allowed_s - (time.perf_counter() - self.started)
        self.durable = shared.queue.append(seq, sealed.record.frame, left)

    def _failed(self, reason: str, late_id: str = "") -> bytes:
        """The answer where no decision was recorded."""
        self.shared.count(self.caller, reason, late_id)
        if self.opens:
            self.shared.metrics.failed_open[self.operation] += 1
            self._observe(True)
            warning = (
                f"sluicegate: allowed without a decision ({reason}), because refusing would block clean-up"
            )
            return protocol.answer(self.uid, True, warnings=[warning])
        self._observe(False)
        code, text = _FAILURES[reason]
        return protocol.answer(
            self.uid, False, code=code, message=f"refused by sluicegate: [{reason}] {text}"
        )

    def _observe(self, allowed: bool) -> None:
        elapsed = int((time.perf_counter() - self.started) * 1e6)
        self.shared.metrics.observe(self.caller.cluster, self.operation, allowed, elapsed)


def _answer(judged: Judged, sealed: Sealed) -> bytes:
    """The answer that derives from a record; not to be given before the record is durable."""
    decision, uid = judged.decision, judged.review.uid
    warnings: list[str] = []
    if decision.warnings:
        warnings = protocol.cut_warnings([line_of(reason) for reason in decision.warnings])
    notes = protocol.annotations(
        uid, sealed.decision_id, decision.policy_digest, sealed.record.leaf_hash.hex()
    )
    if decision.allowed:
        return protocol.answer(uid, True, warnings=warnings, annotations=notes)
    code = 503 if only_failed(decision) else 403
    text = refusal_text(decision, sealed.decision_id)
    return protocol.answer(uid, False, code=code, message=text, warnings=warnings, annotations=notes)


def place_of(exc: BaseException) -> str:
    """Module and line where an exception was raised."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace is not None else ""
