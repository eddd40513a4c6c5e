"""The agents' stream, server side: `POST /agent/v1/poll` and `POST /agent/v1/permit`, bare ASGI over mTLS.

Who speaks is the CN of the certificate that TLS verified, never a field of a body. A poll is answered at once
when operations are pending, else after a hold; its acknowledgements are journalled before it is held. The hub
leads nothing: every replica hands out what the journal holds (rotation.md section 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import orjson

from evidence.database import Database
from evidence.errors import EvidenceError
from evidence.logs import get_logger
from keymgmt.bell import Bell
from keymgmt.errors import AgentUnknown, CouldNotTell, KeymgmtError, MessageRefused, SaidNo
from keymgmt.journal import Journal
from keymgmt.limits import LIMITS, Limits
from keymgmt.model import LinkSpec
from keymgmt.observed import Observed, ViolationReport
from keymgmt.operations import Operation
from keymgmt.peers import Peer, Peers
from keymgmt.permit_request import PermitRequest, PermitSource
from keymgmt.polls import own_sample, read_json, read_poll
from keymgmt.samples import Sample

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

log = get_logger("keymgmt.hub")
_POLL: Final = "/agent/v1/poll"
_PERMIT: Final = "/agent/v1/permit"


class _TooMany(Exception):  # noqa: N818 - an answer for the transport only
    """One agent has as many requests open as it may have."""


class _Late(Exception):  # noqa: N818 - an answer for the transport only
    """The body did not arrive in time."""


class _Gone(Exception):  # noqa: N818 - there is nobody to answer
    """The agent went away before its request was whole."""


class AgentHub:
    """ASGI application of the agents' listener; also what the conductor and the gate know of agents."""

    def __init__(
        self,
        *,
        database: Database,
        links: Callable[[], Mapping[str, LinkSpec]],
        bell: Bell,
        permits: PermitSource | None = None,
        limits: Limits = LIMITS,
        clock: Callable[[], int] = time.time_ns,
        on_sample: Callable[[Sample], None] | None = None,
        on_violation: Callable[[ViolationReport], None] | None = None,
    ) -> None:
        self._peers = Peers(links, clock)
        self._bell = bell
        self._limits = limits
        self._clock = clock
        self.permits = permits
        self.observed = Observed(limits, on_sample=on_sample, on_violation=on_violation)
        self._journal = Journal(database, time_to_act_ms=limits.time_to_act_ms)
        self._recorded: dict[str, str] = {}
        self._busy: Counter[str] = Counter()
        self._held: dict[str, asyncio.Event] = {}
        self._closing = asyncio.Event()

    # --- what others ask (also `linkstatus.Presence`) --------------------------------------------------

    def last_seen_ns(self, agent: str) -> int | None:
        """Wall clock of an agent's last poll."""
        return self.observed.seen.get(agent)

    def secy_of(self, link: str, endpoint: str) -> str | None:
        """SecY lifetime of the newest sample of an end."""
        sample = self.latest_sample(link, endpoint)
        return sample.secy_id if sample is not None else None

    def latest_sample(self, link: str, endpoint: str) -> Sample | None:
        """The newest verified sample of an end."""
        return self.observed.samples.get((link, endpoint))

    def violations(self, link: str, endpoint: str) -> tuple[ViolationReport, ...]:
        """Violations an end has reported, oldest first."""
        return tuple(self.observed.reports.get((link, endpoint), ()))

    def close(self) -> None:
        """Answer every held poll now (a stop of the process)."""
        self._closing.set()

    # --- ASGI -------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            status, body = await self._serve(scope, receive)
        except AgentUnknown as error:
            status, body = 403, _error(error)
        except MessageRefused as error:
            status, body = 400, _error(error)
        except (CouldNotTell, EvidenceError) as error:
            log.warning("agent_request_unanswered", reason=str(error))
            status, body = 503, _error(error)
        except SaidNo as error:
            status, body = 409, _error(error)
        except _Late:
            status, body = 408, b'{"error":"the body did not arrive in time"}'
        except _TooMany:
            status, body = 429, b'{"error":"too many requests of this agent at once"}'
        except _Gone:
            return
        await _answer(send, status, body)

    async def _serve(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        path, method = scope["path"], scope["method"]
        if path not in {_POLL, _PERMIT}:
            return 404, b'{"error":"no such resource"}'
        if method != "POST":
            return 405, b'{"error":"POST only"}'
        peer = self._peers.of(scope.get("state", {}).get("peer_cert"))
        if self._busy[peer.agent] >= self._limits.requests_per_agent:
            raise _TooMany
        self._busy[peer.agent] += 1
        try:
            return await self._serve_peer(peer, path, receive)
        finally:
            self._busy[peer.agent] -= 1

    async def _serve_peer(self, peer: Peer, path: str, receive: Receive) -> tuple[int, bytes]:
        began = time.monotonic()
        most = self._limits.poll_body_max if path == _POLL else self._limits.permit_body_max
        try:
            async with asyncio.timeout(self._limits.body_read_ms / 1000):
                body = await _body(receive, most)
        except TimeoutError:
            raise _Late from None
        if path == _PERMIT:
            return 200, await self._permit(peer, body)
        return await self._poll(peer, body, receive, began)

    # --- poll -------------------------------------------------------------------------------------------

    async def _poll(self, peer: Peer, body: bytes, receive: Receive, began: float) -> tuple[int, bytes]:
        poll = read_poll(peer, body, self._limits)
        await self._note_certificate(peer)
        now = self._clock()
        taken = await self._journal.acknowledge(peer.agent, poll.acks, now)
        self.observed.poll(peer.agent, poll.boot_id, now)
        for sample in poll.samples:
            self.observed.sample(sample)
        for violation in poll.violations:
            self.observed.violation(ViolationReport(peer.link, peer.side, peer.agent, violation, now))
        for link in {link for link, _ack in taken} or {peer.link}:
            self._bell.ring(f"link:{link}")
        operations = await self._wait(peer, poll.nonce, receive, began)
        answer = {
            "nonce": poll.nonce,
            "operations": [operation.to_json() for operation in operations],
            "server_time_ns": str(self._clock()),
        }
        return 200, orjson.dumps(answer)

    async def _wait(self, peer: Peer, nonce: str, receive: Receive, began: float) -> list[Operation]:
        """Operations now, or those that come within the hold; none when the agent goes away."""
        ring = f"agent:{peer.agent}"
        self._bell.clear(ring)
        operations = await self._pending(peer, nonce, began)
        if operations or self._closing.is_set():
            return operations
        older, newer = self._held.get(peer.agent), asyncio.Event()
        self._held[peer.agent] = newer  # an agent polls in one place: the newest poll counts
        if older is not None:
            older.set()
        try:
            if not await self._hold(ring, receive, newer):
                return []
        finally:
            if self._held.get(peer.agent) is newer:
                del self._held[peer.agent]
        return await self._pending(peer, nonce, began)

    async def _pending(self, peer: Peer, nonce: str, began: float) -> list[Operation]:
        most, held_ms = self._limits.operations_per_poll, int((time.monotonic() - began) * 1000)
        return await self._journal.pending(peer.agent, nonce, most, held_ms=held_ms)

    async def _hold(self, ring: str, receive: Receive, newer: asyncio.Event) -> bool:
        """Hold until a ring, the end of the hold or a stop; False when agent or poll is no longer there."""
        seconds = self._limits.poll_hold_ms / 1000
        waits = {
            asyncio.ensure_future(self._bell.wait(ring, seconds)),
            asyncio.ensure_future(self._closing.wait()),
            gone := asyncio.ensure_future(_disconnected(receive)),
            replaced := asyncio.ensure_future(newer.wait()),
        }
        try:
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return gone not in done and replaced not in done

    async def _note_certificate(self, peer: Peer) -> None:
        """Record an enrolment once per certificate."""
        if self._recorded.get(peer.agent) == peer.certificate.digest:
            return
        await self._journal.note_agent(
            agent=peer.agent,
            link=peer.link,
            endpoint=peer.side,
            digest=peer.certificate.digest,
            not_after_ns=peer.certificate.not_after_ns,
            now_ns=self._clock(),
        )
        self._recorded[peer.agent] = peer.certificate.digest

    # --- permit -----------------------------------------------------------------------------------------

    async def _permit(self, peer: Peer, body: bytes) -> bytes:
        if self.permits is None:
            raise CouldNotTell("no gate runs here", fix="start the gate")
        request = PermitRequest.from_json(read_json(body), agent=peer.agent)
        if (request.link, request.endpoint) != (peer.link, peer.side):
            raise MessageRefused("permit request: for another link or end than the certificate's")
        self.observed.sample(own_sample(peer, request.sample))
        return await self.permits.answer(request)


async def _body(receive: Receive, most: int) -> bytes:
    """The whole body, refused as soon as it is too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise MessageRefused(f"body of more than {most} octets")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(error: KeymgmtError | EvidenceError) -> bytes:
    return orjson.dumps({"error": str(error), "fix": error.fix})


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    with contextlib.suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
