"""The admission webhook: a bare ASGI application. What is answered was durable before.

    POST /admit/{cluster}                 with the API server's client certificate
    POST /admit/{cluster}/{path token}    where the provider cannot give one

Steps of one request, each of which can only refuse: (1) take the token out of the scope, so that no log can
hold it; (2) authenticate; (3) read the body within its limits; (4) decode; (5) judge; (6) make the complete
record durable; (7) answer. Steps 4 to 7 stand in `handler`.

`AdmissionApp.direct` does the same for a listener that has an ordinary request whole in its hands (see
`policy_engine.http_protocol`); whatever it would have to refuse before the body it leaves to ASGI.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from evidence.errors import EvidenceError
from evidence.logs import get_logger
from policy_engine.admission.deps import AdmissionDeps
from policy_engine.admission.handler import Handling, ReviewHandler, place_of
from policy_engine.admission.identities import Caller
from policy_engine.admission.protocol import answer
from policy_engine.admission.tally import AdmissionMetrics
from policy_engine.bodies import BodyReader
from policy_engine.errors import BadBody, BadReview, DecisionLate, Forbidden, Unauthenticated
from policy_engine.http_protocol import Answered

log = get_logger("policy_engine.admission")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PREFIX: Final = "/admit/"
_TYPE: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
_TARGETS_KEPT: Final = 64  # request targets; an API server uses one


class AdmissionApp:
    """Serves `/admit/{cluster}[/{path token}]`; mount it at `/admit`, or serve it alone.

    Attributes:
        metrics: Register it in the registry behind `/metrics`.
    """

    def __init__(self, deps: AdmissionDeps) -> None:
        self.metrics = AdmissionMetrics()
        self._deps = deps
        limits = self._limits = deps.limits
        self._bodies = BodyReader(limits.review_body_bytes, limits.review_body_s, limits.body_bytes_in_flight)
        self._handler = ReviewHandler(deps, self.metrics)
        self._per_cluster: dict[str, int] = {}
        self._targets: dict[bytes, tuple[str, float]] = {}  # of callers with a certificate: hold no token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return  # neither lifespan nor websocket is served
        # 1. No log may hold the token.
        cluster, token = _route(scope)
        if cluster is None or scope["method"] != "POST":
            status = 404 if cluster is None else 405
            await _refuse(send, status, "POST an AdmissionReview to /admit/{cluster}")
            return
        # 2. Authenticate before a byte of the body is looked at.
        try:
            caller = self._caller(cluster, token, scope["state"].get("peer_cert"))
        except (Unauthenticated, Forbidden) as exc:
            self.metrics.refused[exc.reason] += 1
            status = 401 if isinstance(exc, Unauthenticated) else 403
            await _refuse(send, status, str(exc))
            return
        await self._admitted(scope, receive, send, caller)

    def direct(self, target: bytes, state: dict[str, Any], length: int) -> DirectReview | None:
        """Take an ordinary POST before its body; None leaves it to the ASGI route.

        Args:
            target: As the request line has it.
            state: Of the connection: `peer_cert`.
            length: Octets of the body, as declared.
        """
        peer_cert = state.get("peer_cert")
        if peer_cert is None or length > self._limits.review_body_bytes:
            return None
        known = self._targets.get(target) or self._plain(target)
        if known is None:
            return None
        cluster, allowed_s = known
        # 2. Authenticate before a byte of the body is looked at.
        try:
            caller = self._caller(cluster, None, peer_cert)
        except (Unauthenticated, Forbidden):
            return None
        if self._full(cluster):
            return None
        if target not in self._targets and len(self._targets) < _TARGETS_KEPT:
            self._targets[target] = known
        self._enter(cluster)
        return DirectReview(self, self._handler.begin(caller, allowed_s))

    def _plain(self, target: bytes) -> tuple[str, float] | None:
        """Cluster and deadline of a target without token, escapes or anything else out of the ordinary."""
        path, _, query = target.partition(b"?")
        cluster = path.removeprefix(_PREFIX.encode()).decode("latin-1")
        if len(cluster) == len(path) or not cluster.replace("-", "a").isalnum() or not cluster.isascii():
            return None
        return cluster, self._allowed_s(query)

    def _caller(self, cluster: str, token: str | None, peer_cert: bytes | None) -> Caller:
        return self._deps.identities().authenticate(cluster, token, peer_cert, self._deps.clock())

    def _full(self, cluster: str) -> bool:
        """Whether one more review of this cluster would be one too many to judge."""
        limits = self._limits
        return (
            self.metrics.in_flight >= limits.reviews_in_flight
            or self._per_cluster.get(cluster, 0) >= limits.reviews_in_flight_per_cluster
        )

    def _enter(self, cluster: str) -> None:
        """One review more is in flight, until `release`."""
        self._per_cluster[cluster] = self._per_cluster.get(cluster, 0) + 1
        self.metrics.in_flight += 1

    def release(self, cluster: str) -> None:
        """One review of a cluster is no longer in flight."""
        self.metrics.in_flight -= 1
        self._per_cluster[cluster] -= 1

    def refused(self, exc: BaseException, uid: str) -> tuple[int, bytes, bool]:
        """Status, body and whether to close, where there is no verdict: no review, or a defect of ours."""
        if isinstance(exc, BadReview):
            self.metrics.refused["bad_review"] += 1
            return exc.status, answer(exc.uid, False, code=400, message=str(exc)), False
        if isinstance(exc, BadBody):
            self.metrics.refused["bad_review"] += 1
            return exc.code, answer("", False, code=exc.code, message=str(exc)), exc.code != 400
        self.metrics.refused["defect"] += 1
        # Type and place only: the text of a foreign exception may quote the object.
        log.error("answer_failed", error=type(exc).__name__, at=place_of(exc))
        return 500, answer(uid, False, code=500, message="an internal error; the log names it"), True

    async def flush_summary(self) -> bool:
        """Write the pending `decision_summary` record now; call it before stopping.

        While there is something to write, it is tried every second anyway.

        Returns:
            True when nothing is pending any more.
        """
        return await self._handler.flush_summary()

    async def _admitted(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        if self.metrics.in_flight >= 2 * self._limits.reviews_in_flight:
            # So late that not even the uid can be read for an answer of the usual form.
            self.metrics.refused["overload"] += 1
            await _refuse(send, 429, "too many reviews at once")
            return
        overloaded = self._full(caller.cluster)
        self._enter(caller.cluster)
        handling = self._handler.begin(caller, self._allowed_s(scope["query_string"]))
        try:
            try:
                data, status, close = await self._decided(scope, receive, handling, overloaded), 200, False
            except Exception as exc:
                status, data, close = self.refused(exc, handling.uid)
            await _send(send, status, data, close=close)
        finally:
            self.release(caller.cluster)

    async def _decided(self, scope: Scope, receive: Receive, handling: Handling, overloaded: bool) -> bytes:
        # 3. The body, within its limits.
        self._bodies.check_declared(scope["headers"])
        body = await self._bodies.read(receive)
        # 4. to 7.
        data = handling.take(body, overloaded=overloaded)
        if data is not None:
            return data
        assert handling.durable is not None
        with contextlib.suppress(EvidenceError, DecisionLate):  # `finish` says it
            await handling.durable
        return handling.finish()

    def _allowed_s(self, query: bytes) -> float:
        """Seconds for an answer: our own deadline, or less when the API server gives less (`timeout=10s`)."""
        return _deadline(query, self._limits.decision_deadline_ms, self._limits.deadline_margin_ms)


class DirectReview:
    """One review on its way past ASGI: an `Exchange` of the listener's protocol."""

    __slots__ = ("_answered", "_app", "_handling")

    def __init__(self, app: AdmissionApp, handling: Handling) -> None:
        self._app = app
        self._handling = handling

    def decline(self) -> None:
        """The ASGI route counts it again."""
        self._app.release(self._handling.caller.cluster)

    def run(self, body: bytes, answered: Answered) -> None:
        """Steps 4 to 6; step 7 when the record is durable."""
        self._answered = answered
        handling = self._handling
        try:
            data = handling.take(body, overloaded=False)
        except Exception as exc:
            self._answer(*self._app.refused(exc, handling.uid))
            return
        if data is None:
            assert handling.durable is not None
            handling.durable.add_done_callback(self._finish)
        else:
            self._answer(200, data, False)

    def _finish(self, _durable: asyncio.Future[None]) -> None:
        try:
            data = self._handling.finish()
        except (Exception, asyncio.CancelledError) as exc:
            self._answer(*self._app.refused(exc, self._handling.uid))
        else:
            self._answer(200, data, False)

    def _answer(self, status: int, data: bytes, close: bool) -> None:
        self._app.release(self._handling.caller.cluster)
        self._answered(status, data, close)


def _route(scope: Scope) -> tuple[str | None, str | None]:
    """Cluster and token of the path; the scope keeps a path without the token."""
    path: str = scope["path"]
    if not path.startswith(_PREFIX):
        return None, None
    cluster, _, token = path[len(_PREFIX) :].partition("/")
    if token:
        scope["path"] = _PREFIX + cluster
        scope["raw_path"] = scope["path"].encode("utf-8", "replace")
    return cluster or None, token or None


def _deadline(query: bytes, own_ms: int, margin_ms: int) -> float:
    allowed_ms = own_ms
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit() and len(value) < 5:
            allowed_ms = min(own_ms, max(int(value[:-1]) * 1000 - margin_ms, margin_ms))
    return allowed_ms / 1000


async def _refuse(send: Send, status: int, message: str) -> None:
    """Without a verdict; the rest of the request is not read."""
    await _send(send, status, answer("", False, code=status, message=message), close=True)


async def _send(send: Send, status: int, body: bytes, *, close: bool = False) -> None:
    headers = [_TYPE, (b"content-length", b"%d" % len(body))]
    if close:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
