"""The other engine: a real OPA server that serves the same bundle, asked through opa-python-client.

The client stays behind this one adapter, which answers what it leaves open: no retries (a retried question
is a late answer), one deadline for the whole exchange and not per read, no proxies or certificates from
the environment, no redirects (they would carry the token), ``{}`` for an undefined document, a dozen
error classes without a common base. Policies are never uploaded through it: it rewrites them by default
(`rego_compat`); the server loads the bundle file itself.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from opa_client.opa import OpaClient

from policy_engine.errors import EngineNoResult, UsageError
from policy_engine.limits import LIMITS, Limits
from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Result, parse_result

_PACKAGE: Final = "sluicegate.main"
_RULE: Final = "result"
# Without it a failing builtin is undefined, and a deny rule that calls it falls silent.
_STRICT: Final = {"strict-builtin-errors": "true"}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class OpaServerEngine:
    """Asks an OPA server; blocks for at most the deadline. Call it from a worker thread."""

    name = "opa_server"

    def __init__(
        self,
        url: str,
        bundle: Bundle,
        *,
        ca_file: Path | None = None,
        client_cert: tuple[Path, Path] | None = None,
        token: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            url: ``https://host:port``; plain http only on this machine.
            bundle: The bundle that the server must serve; answers of another policy do not count.
            ca_file: Certificate authority of the server; the system's when not given.
            client_cert: Certificate and key for mutual TLS.
            token: Bearer token.
            limits: Deadline, workers, sizes.

        Raises:
            UsageError: The url is none of these.
        """
        self.policy_digest = bundle.policy_digest
        self._limits = limits
        self._options = _options(url, client_cert, token, limits)
        self._verify: str | bool = True if ca_file is None else str(ca_file)
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(limits.opa_workers, thread_name_prefix="opa")

    def evaluate(self, input_bytes: bytes, digest: str) -> Result:
        """See :class:`policy_engine.rules.engine.Engine`."""
        answer = self._within_deadline(_decoded(input_bytes, self._limits))
        # An undefined document comes back as an object without `result`.
        if not isinstance(answer, dict) or "result" not in answer:
            raise EngineNoResult("the policy is undefined for this input")
        return parse_result(answer["result"], self.policy_digest, digest, self._limits.engine_violations)

    def close(self) -> None:
        """Ask nothing more; workers end after their question."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _within_deadline(self, document: object) -> object:
        """The whole exchange in one deadline: the client's own timeout only bounds each read."""
        try:
            future = self._pool.submit(self._ask, document)
        except RuntimeError:
            raise EngineNoResult("the engine is closed") from None
        try:
            return future.result(self._limits.opa_deadline_s)
        except LateError:
            future.cancel()
            raise EngineNoResult("the OPA server did not answer in time") from None
        except Exception as error:
            # The client's errors have no common base, and their texts may quote input or address.
            raise EngineNoResult(f"the OPA server gave no answer: {type(error).__name__}") from None

    def _ask(self, document: object) -> object:
        answer: object = self._client().query_rule(document, _PACKAGE, _RULE, query_params=_STRICT)
        return answer

    def _client(self) -> Any:
        """One client per worker: a session is not made for several threads."""
        client = getattr(self._local, "client", None)
        if client is None:
            client = OpaClient(**self._options)
            session = client._session
            session.trust_env = False  # no proxy, no CA bundle, no netrc from the environment
            session.verify = self._verify  # the client has no argument for it
            session.max_redirects = 0
            self._local.client = client
        return client


def _options(
    url: str, client_cert: tuple[Path, Path] | None, token: str | None, limits: Limits
) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise UsageError("the OPA server's url must be https://host:port", fix="leave path and query out")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise UsageError("an OPA server on another machine must be asked over https")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return {
        "host": host,
        "port": parts.port or 8181,
        "ssl": parts.scheme == "https",
        "cert": None if client_cert is None else tuple(str(path) for path in client_cert),
        "token": token,
        "retries": 0,
        "timeout": limits.opa_deadline_s,
    }


def _decoded(input_bytes: bytes, limits: Limits) -> object:
    if len(input_bytes) > limits.engine_input_bytes:
        raise EngineNoResult("the input is larger than the limit")
    try:
        return orjson.loads(input_bytes)
    except orjson.JSONDecodeError:
        raise EngineNoResult("the input is not JSON") from None
