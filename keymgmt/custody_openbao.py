"""Custody on OpenBao's transit engine, as measured on 2.7 (rotation.md section 1).

Destroying version v: make v+1 the newest, raise *both* minima to v+1 in one call, trim to v+1, read back.
Raising `min_decryption_version` alone is no destruction, it can be lowered again. Between config and trim a
stale conductor can lower the minima, and then trim is refused; so the two are one loop that ends only when
read-back shows v gone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from keymgmt.bao import BaoSession
from keymgmt.custody import Destroyed, Wrapped
from keymgmt.errors import CustodyRefused, CustodyUnavailable, RightsRefused
from keymgmt.limits import LIMITS, Limits


class OpenBaoLinkKeys:
    """`LinkKeys` with the conductor's role. The epoch stands in the mount's name."""

    def __init__(self, session: BaoSession, *, epoch: int, limits: Limits = LIMITS) -> None:
        self.epoch = epoch
        self._bao = session
        self._mount = f"links-e{epoch}"
        self._tries = limits.destroy_tries

    def rotate(self, link: str) -> int:
        """Make a new version and return its number, from the answer itself."""
        answer = self._bao.write(f"{self._mount}/keys/{link}/rotate")
        return _version(answer.get("data"), "latest_version")

    def wrapped(self, link: str, associated_data: bytes) -> Wrapped:
        """A wrapped data key; its version is read from the answer and from the ciphertext's prefix.

        Raises:
            CustodyRefused: the two differ, or the call is outside the role's rights.
            CustodyUnavailable: no answer.
        """
        body = {"associated_data": base64.b64encode(associated_data).decode(), "bits": "256"}
        answer = self._bao.write(f"{self._mount}/datakey/wrapped/{link}", body)
        data = answer.get("data") or {}
        version, ciphertext = _version(data, "key_version"), str(data.get("ciphertext", ""))
        if not ciphertext.startswith(f"vault:v{version}:"):
            raise CustodyRefused(f"link {link}: wrapped key and its version do not agree")
        return Wrapped(ciphertext, version)

    def destroy(self, link: str, version: int) -> Destroyed:
        """Destroy `version` and all below it; returns what read-back shows.

        Raises:
            CustodyUnavailable: read-back does not show it gone within the allowed rounds.
            CustodyRefused: outside the role's rights.
        """
        keep = version + 1
        for _ in range(self._tries):
            key = self._key(link)
            if _gone(key, version):
                return Destroyed(version, int(key["min_available_version"]), int(key["latest_version"]))
            if int(key["latest_version"]) < keep:
                self.rotate(link)
            self._raise_and_trim(link, max(keep, int(key["min_decryption_version"])), keep)
        raise CustodyUnavailable(
            f"link {link}: version {version} is still there after {self._tries} rounds",
            fix="look for a second conductor that lowers minima; the rotation waits",
        )

    def _raise_and_trim(self, link: str, minimum: int, keep: int) -> None:
        both = {"min_decryption_version": minimum, "min_encryption_version": minimum}
        try:
            self._bao.write(f"{self._mount}/keys/{link}/config", both)
            self._bao.write(f"{self._mount}/keys/{link}/trim", {"min_available_version": keep})
        except RightsRefused:
            raise
        except CustodyRefused:
            return  # lowered in between, or trimmed already: the next read-back decides

    def _key(self, link: str) -> dict[str, Any]:
        found = self._bao.read(f"{self._mount}/keys/{link}")
        if found is None:
            why = f"link {link} has no key in {self._mount}"
            raise CustodyRefused(why, fix="add the link with the provisioner role")
        return found

    def read_epoch(self) -> int:
        """The epoch in the store's KV."""
        return read_epoch(self._bao)


class OpenBaoSigner:
    """`LedgerKey` on a transit Ed25519 key; also the evidence ledger's Signer."""

    def __init__(self, session: BaoSession, key: str, *, mount: str = "transit") -> None:
        self.name = key
        self.key_id = key
        self._bao = session
        self._mount = mount

    def public_key(self) -> bytes:
        """The newest version's public key, 32 octets. Versions are numbers: as strings "9" > "10"."""
        found = self._bao.read(f"{self._mount}/keys/{self.name}")
        if found is None:
            raise CustodyRefused(f"no signing key {self.name}", fix="provision the key store")
        newest = max(found["keys"], key=int)
        return base64.b64decode(found["keys"][newest]["public_key"])

    def sign(self, data: bytes) -> bytes:
        """Sign exactly `data`; 64 octets."""
        body = {"input": base64.b64encode(data).decode()}
        answer = self._bao.write(f"{self._mount}/sign/{self.name}", body)
        text = str((answer.get("data") or {}).get("signature", ""))
        signature = base64.b64decode(text.rpartition(":")[2])
        if len(signature) != 64:
            raise CustodyUnavailable(f"signing key {self.name}: the answer is no Ed25519 signature")
        return signature


class OpenBaoStore:
    """`SealedStore` on KV version 2 with compare-and-set on every write."""

    def __init__(self, session: BaoSession, *, mount: str = "kv") -> None:
        self._bao = session
        self._mount = mount

    def get(self, path: str) -> tuple[Mapping[str, Any], int] | None:
        """The document and its version."""
        found = self._bao.read(f"{self._mount}/data/{path}")
        if found is None or not isinstance(found.get("data"), dict):
            return None
        return found["data"], int(found["metadata"]["version"])

    def put(self, path: str, document: Mapping[str, Any], *, expected: int) -> int:
        """Write under compare-and-set.

        Raises:
            CustodyRefused: somebody wrote in between (read again), or outside the role's rights.
        """
        body = {"data": dict(document), "options": {"cas": expected}}
        answer = self._bao.write(f"{self._mount}/data/{path}", body)
        return _version(answer.get("data"), "version")


def read_epoch(session: BaoSession) -> int:
    """The estate's epoch; every start compares it and refuses to issue on a mismatch.

    Raises:
        CustodyRefused: there is none: the store was never provisioned.
    """
    found = OpenBaoStore(session).get("epoch")
    if found is None:
        raise CustodyRefused(
            "the key store holds no epoch", fix="provision it, or restore the right snapshot"
        )
    return int(found[0]["epoch"])


def _version(data: Any, name: str) -> int:
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CustodyUnavailable(f"the key store's answer has no {name}")
    return value


def _gone(key: Mapping[str, Any], version: int) -> bool:
    """Read-back: trimmed above `version`, and no such version listed."""
    listed = {int(number) for number in key.get("keys", {})}
    return int(key["min_available_version"]) > version and not any(number <= version for number in listed)
