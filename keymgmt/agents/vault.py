"""The agent's rights in OpenBao: log in by certificate, decrypt on its own link, renew, sign its next CSR.

Only http.client, so that an agent stays small. The token lives in memory. A login that OpenBao forgot
(restart, revoked token) is made anew once per call; a sealed or absent OpenBao is `CustodyUnavailable`, which
is never a reason to touch a key: links stay up on the old one.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from keymgmt.agents.client import Connection, Refused
from keymgmt.agents.config import BaoPaths, Server
from keymgmt.agents.identity import Identity
from keymgmt.errors import ControlUnavailable, CustodyRefused, CustodyUnavailable

RENEW_AT: Final = 0.5  # share of a token's life after which it is renewed
AWAY: Final = frozenset({429, 472, 473, 500, 502, 503, 504})


class BaoRefused(CustodyRefused):
    """OpenBao answered no; `status` is the HTTP status."""

    def __init__(self, status: int, path: str) -> None:
        super().__init__(f"OpenBao answered {status} to {path}")
        self.status = status


class Vault:
    """One agent's session with OpenBao. Thread-safe: one request at a time."""

    def __init__(
        self, server: Server, paths: BaoPaths, identity: Callable[[], Identity], timeout_s: float = 5.0
    ) -> None:
        self._paths, self._identity = paths, identity
        self._connection = Connection(server, identity, timeout_s)
        self._lock = threading.Lock()
        self._token: str | None = None
        self._serial: int | None = None
        self._renew_at = 0.0

    def decrypt(self, link: str, ciphertext: str, associated_data: bytes) -> bytes:
        """Unwrap a data key under its associated data.

        Raises:
            CustodyRefused: no right, wrong associated data, or the version is gone.
            CustodyUnavailable: sealed or away.
        """
        body = {"ciphertext": ciphertext, "associated_data": base64.b64encode(associated_data).decode()}
        answer = self._call("POST", f"{self._paths.keys_mount}/decrypt/{link}", body)
        try:
            return base64.b64decode(answer["data"]["plaintext"], validate=True)
        except (KeyError, TypeError, binascii.Error):
            raise CustodyUnavailable("OpenBao's answer holds no plaintext") from None

    def sign_csr(self, csr: str) -> str:
        """Return the PEM certificate of this agent's next key."""
        answer = self._call("POST", f"{self._paths.pki_mount}/sign/{self._paths.pki_role}", {"csr": csr})
        try:
            return str(answer["data"]["certificate"])
        except (KeyError, TypeError):
            raise CustodyUnavailable("OpenBao's answer holds no certificate") from None

    def keep_alive(self) -> None:
        """Log in when there is no token, renew it when half of its life has passed."""
        with self._lock:
            if self._token is None or self._identity().serial != self._serial:
                self._login()
            elif time.monotonic() >= self._renew_at:
                try:
                    answer = self._send("POST", "auth/token/renew-self", {}, self._token)
                except CustodyRefused:
                    self._login()
                else:
                    self._accept(answer)

    def _call(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            fresh = self._token is None or self._identity().serial != self._serial
            if fresh:
                self._login()
            try:
                return self._send(method, path, body, self._token)
            except BaoRefused as refused:
                if fresh or refused.status != 403:
                    raise
            self._login()
            return self._send(method, path, body, self._token)

    def _login(self) -> None:
        self._token = None
        serial = self._identity().serial
        path = f"auth/{self._paths.cert_mount}/login"
        self._accept(self._send("POST", path, {"name": self._paths.cert_role}, None))
        self._serial = serial

    def _accept(self, answer: Mapping[str, Any]) -> None:
        try:
            auth = answer["auth"]
            token, lasts_s = str(auth["client_token"]), float(auth["lease_duration"])
        except (KeyError, TypeError, ValueError):
            raise CustodyUnavailable("OpenBao's answer holds no token") from None
        self._token, self._renew_at = token, time.monotonic() + RENEW_AT * lasts_s

    def _send(self, method: str, path: str, body: Mapping[str, Any], token: str | None) -> dict[str, Any]:
        return bao_call(self._connection, method, path, body, token)


def bao_call(
    connection: Connection, method: str, path: str, body: Mapping[str, Any], token: str | None
) -> dict[str, Any]:
    """Make one call to OpenBao.

    Raises:
        BaoRefused: an answer, and it was no.
        CustodyUnavailable: sealed, away, or an answer that is no JSON object.
    """
    headers = {"X-Vault-Request": "true"} | ({"X-Vault-Token": token} if token is not None else {})
    try:
        octets = connection.request(method, f"/v1/{path}", json.dumps(body).encode(), headers)
        answer = json.loads(octets) if octets else {}
    except Refused as refused:
        if refused.status in AWAY:
            raise CustodyUnavailable(f"OpenBao answered {refused.status}: sealed or starting") from None
        raise BaoRefused(refused.status, path) from None
    except (ControlUnavailable, ValueError, RecursionError):
        raise CustodyUnavailable("OpenBao does not answer") from None
    if not isinstance(answer, dict):
        raise CustodyUnavailable("OpenBao's answer is no JSON object")
    return answer
