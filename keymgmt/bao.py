"""A typed session with OpenBao over hvac, with hvac's hazards shut out (all of them measured).

* `verify` stands on the session: an own Session overrides the client's argument silently.
* Redirects are off: they would carry the token to another host.
* Token, namespace and address are always passed: hvac reads the environment and ~/.vault-token otherwise.
* Nothing is retried, except that a call refused with 403 is repeated once after a new login: a refused call
  did nothing, and after a restart an expired token looks just like a missing right.
* Errors keep the path and status only: bodies of the store may quote what was sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hvac
import hvac.exceptions
import requests
from requests.adapters import HTTPAdapter

from keymgmt.errors import CustodyRefused, CustodyUnavailable, RightsRefused
from keymgmt.limits import LIMITS, Limits

_SEALED = "the key store is sealed, away or not active"
_FIX_AWAY = "unseal or restart OpenBao; links stay up on their present keys meanwhile"
_FIX_RIGHTS = "compare the role's policy with deploy/openbao (the call is outside its rights or malformed)"


@dataclass(frozen=True, slots=True)
class AppRole:
    """Credentials of one role. Not shown in any representation."""

    role_id: str = field(repr=False)
    secret_id: str = field(repr=False)
    mount: str = "approle"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the store is and who vouches for its certificate."""

    url: str
    ca_file: Path


class BaoSession:
    """One role's session: logs in when it must, renews itself, maps every error. Safe between threads."""

    def __init__(
        self,
        address: Address,
        login: AppRole | None = None,
        *,
        token: str = "",
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login
        self._limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._born = self._clock()
        self._life_s = 0.0
        self._http = requests.Session()
        self._http.verify = str(address.ca_file)
        self._http.trust_env = False
        self._http.mount("https://", HTTPAdapter(pool_connections=1, pool_maxsize=2, max_retries=0))
        self._client: Any = hvac.Client(
            url=address.url,
            token=token,
            session=self._http,
            allow_redirects=False,
            timeout=(limits.custody_connect_s, limits.custody_read_s),
            namespace="",
        )

    def close(self) -> None:
        """Close connections; the token lives on until it expires or `revoke_self`."""
        self._http.close()

    def read(self, path: str) -> dict[str, Any] | None:
        """The `data` of a read, None where nothing is.

        Raises:
            CustodyRefused: outside this role's rights.
            CustodyUnavailable: no answer that could be trusted.
        """
        answer = self._call(path, lambda: self._client.read(path))
        return None if answer is None else _data(answer)

    def list(self, path: str) -> list[str]:
        """Names under a path; empty where nothing is. Raises as `read`."""
        answer = self._call(path, lambda: self._client.list(path))
        return [] if answer is None else [str(key) for key in _data(answer).get("keys", [])]

    def write(
        self, path: str, data: Mapping[str, Any] | None = None, *, wrap_ttl_s: int | None = None
    ) -> dict[str, Any]:
        """A write; returns the whole answer, {} for an empty one. Raises as `read`."""
        wrap = None if wrap_ttl_s is None else f"{wrap_ttl_s}s"
        answer = self._call(path, lambda: self._client.write_data(path, data=dict(data or {}), wrap_ttl=wrap))
        return _whole(answer)

    def delete(self, path: str) -> None:
        """A delete. Raises as `read`."""
        self._call(path, lambda: self._client.delete(path))

    def revoke_self(self) -> None:
        """End this session's token. Raises as `read`."""
        self._call("auth/token/revoke-self", self._client.auth.token.revoke_self)
        self._client.token = ""

    def _call(self, path: str, do: Callable[[], Any]) -> Any:
        with self._lock:
            self._keep_alive()
            try:
                return _guarded(path, do)
            except RightsRefused:
                # Any other refusal says nothing about the token; a young token is not the cause.
                if self._login is None or self._clock() - self._born < 1.0:
                    raise
                self._enter()
                return _guarded(path, do)

    def _keep_alive(self) -> None:
        if self._login is None:
            return
        age = self._clock() - self._born
        if not self._client.token or age >= self._life_s:
            self._enter()
        elif age >= self._life_s * self._limits.custody_renew_at:
            self._renew()

    def _renew(self) -> None:
        try:
            answer = _guarded("auth/token/renew-self", self._client.auth.token.renew_self)
        except CustodyRefused:
            self._enter()
            return
        self._alive(answer)

    def _enter(self) -> None:
        login = self._login
        assert login is not None
        self._client.token = ""
        path = f"auth/{login.mount}/login"
        body = {"role_id": login.role_id, "secret_id": login.secret_id}
        answer = _guarded(path, lambda: self._client.write_data(path, data=body))
        self._alive(answer)

    def _alive(self, answer: Any) -> None:
        auth = _whole(answer).get("auth") or {}
        self._client.token = auth.get("client_token", "")
        self._life_s = float(auth.get("lease_duration", 0)) or 60.0
        self._born = self._clock()


def _guarded(path: str, do: Callable[[], Any]) -> Any:
    """Run one call and let only our two errors out, without the store's own text."""
    try:
        return do()
    except hvac.exceptions.Forbidden:
        raise RightsRefused(f"{path}: refused, 403", fix=_FIX_RIGHTS) from None
    except (hvac.exceptions.InvalidRequest, hvac.exceptions.InvalidPath) as error:
        status = 404 if isinstance(error, hvac.exceptions.InvalidPath) else 400
        raise CustodyRefused(f"{path}: refused, {status}", fix=_FIX_RIGHTS) from None
    except (hvac.exceptions.VaultError, requests.RequestException) as error:
        raise CustodyUnavailable(f"{path}: {_SEALED} ({type(error).__name__})", fix=_FIX_AWAY) from None


def _whole(answer: Any) -> dict[str, Any]:
    """A JSON answer, {} for 204; anything else (a redirect, a proxy's page) could not be trusted."""
    if isinstance(answer, dict):
        return answer
    if getattr(answer, "status_code", None) == 204:
        return {}
    raise CustodyUnavailable(f"{_SEALED} (unexpected answer)", fix=_FIX_AWAY)


def _data(answer: Any) -> dict[str, Any]:
    data = _whole(answer).get("data")
    return data if isinstance(data, dict) else {}
