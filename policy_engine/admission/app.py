"""The admission webhook: a bare ASGI application. Heads first; see docs/webhook.md."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from policy_engine.admission.deps import AdmissionDeps

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AdmissionApp:
    """Serves `/admit/{cluster}` and `/admit/{cluster}/{path token}`; mount it at `/admit` or serve it alone."""

    def __init__(self, deps: AdmissionDeps) -> None:
        self._deps = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: authenticate, read, judge, make durable, answer."""
        raise NotImplementedError

    async def flush_summary(self) -> bool:
        """Writes the pending `decision_summary` record (refusals without a record). Call every second.

        Returns:
            True when nothing is pending any more.
        """
        raise NotImplementedError
