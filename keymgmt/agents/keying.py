"""From `prepare` to `install`: what must hold before a key reaches hardware, and in which order.

Key material exists here only inside `install`: unwrapped, derived, handed to the driver, forgotten. The
nonces that `prepare` gives out live in memory, so that no wrap of an earlier life of this agent, and no wrap
of another rotation, can be installed (rotation.md 1.3).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from keymgmt.agents.config import AgentConfig
from keymgmt.agents.state import Burnt
from keymgmt.checks import encode_counters
from keymgmt.derive import SaKey, associated_data, check_plan, derive_pair
from keymgmt.drivers import SaInstall, SakDriver
from keymgmt.errors import DriverRefused, KeymgmtError, OperationRefused
from keymgmt.operations import Operation

PREPARED_KEPT: Final = 4
UNWRITABLE: Final = "state_unwritable"


class HalfDoneError(KeymgmtError):
    """Hardware refused after something was done: a key id burnt, an SA installed or deleted."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentKeys(Protocol):
    """Custody as an agent sees it."""

    def decrypt(self, link: str, ciphertext: str, associated_data: bytes) -> bytes:
        """Unwrap a data key. Raises CustodyRefused, CustodyUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """One rotation this agent has given a nonce for."""

    nonce: str
    an: int
    cipher: str
    secy_id: str


class Keying:
    """Keys of one end: nonces that are out, and the one way into hardware."""

    def __init__(self, config: AgentConfig, driver: SakDriver, keys: AgentKeys, burnt: Burnt) -> None:
        self._config, self._burnt = config, burnt
        self.driver, self.keys = driver, keys
        self.prepared: dict[str, Prepared] = {}

    def prepare(self, op: Operation) -> dict[str, Any]:
        """Check the plan against this end and give out a fresh nonce."""
        params, rotation = op.params, _rotation(op)
        check_plan(self._config.sci, params["tx_sci"], params["rx_sci"], params["ssci"])
        if params["rx_sci"] != self._config.peer_sci:
            raise OperationRefused("plan_differs", "the plan's peer is not this end's peer")
        reading = self.driver.read()
        if any(sa.an == params["an"] for sa in (*reading.tx, *reading.rx)):
            raise OperationRefused("an_in_use", "the AN is not empty at this end")
        nonce = secrets.token_hex(16)
        self.prepared[rotation] = Prepared(nonce, params["an"], params["cipher"], reading.secy_id)
        while len(self.prepared) > PREPARED_KEPT:
            self.prepared.pop(next(iter(self.prepared)))
        return {"nonce": nonce}

    def install(self, op: Operation) -> dict[str, Any]:
        """Unwrap, derive, burn, install receive and transmit; return key ids and check values."""
        rotation = _rotation(op)
        prepared = self.prepared.get(rotation)
        if prepared is None:
            raise OperationRefused("nonce_unknown", "no nonce of this agent's present life is out for it")
        if self.driver.read().secy_id != prepared.secy_id:
            raise OperationRefused("secy_changed", "the SecY began anew since prepare")
        ad = self._own_ad(rotation, prepared, op.params["ad"])
        if ad != op.params["ad"] or (op.params["an"], op.params["cipher"]) != (prepared.an, prepared.cipher):
            raise OperationRefused("plan_differs", "the associated data is not what this end prepared")
        if not op.params["ciphertext"].startswith(f"vault:v{op.params['key_version']}:"):
            raise OperationRefused("plan_differs", "the ciphertext is of another key version")
        data_key = self.keys.decrypt(self._config.link, op.params["ciphertext"], associated_data(ad))
        del self.prepared[rotation]  # one nonce, one install
        pair = derive_pair(
            data_key,
            link=self._config.link,
            rotation=rotation,
            cipher=prepared.cipher,
            an=prepared.an,
            own_sci=self._config.sci,
            peer_sci=self._config.peer_sci,
        )
        del data_key
        return self._to_hardware(prepared, pair.tx, pair.rx)

    def _own_ad(self, rotation: str, prepared: Prepared, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Build the associated data from what this end knows; only the peer's nonce comes from the offer."""
        scis = [self._config.sci, self._config.peer_sci]
        nonces = [prepared.nonce, offered["nonce_b" if self._config.endpoint == "a" else "nonce_a"]]
        if self._config.endpoint == "b":
            scis.reverse()
            nonces.reverse()
        return {
            "link": self._config.link,
            "rotation": rotation,
            "cipher": prepared.cipher,
            "an": prepared.an,
            "scis": scis,
            "nonce_a": nonces[0],
            "nonce_b": nonces[1],
        }

    def _to_hardware(self, prepared: Prepared, tx: SaKey, rx: SaKey) -> dict[str, Any]:
        """Burn both key ids durably, then install receive before transmit."""
        for key in (tx, rx):
            if key.key_id in self._burnt:
                raise OperationRefused("burnt", "this key was installed before: never a second time")
        try:
            for key in (tx, rx):
                self._burnt.burn(key.key_id, key.check)
        except OSError:
            raise OperationRefused(UNWRITABLE, "key ids cannot be stored: no key was installed") from None
        try:
            rx_check = self.driver.install_rx(_sa(prepared, rx, self._config.peer_sci), prepared.secy_id)
            tx_check = self.driver.install_tx(_sa(prepared, tx, self._config.sci), prepared.secy_id)
        except DriverRefused as no:
            raise HalfDoneError(no.code, str(no)) from None
        return {
            "key_ids": {"tx": tx.key_id, "rx": rx.key_id},
            "checks": {"tx": tx_check, "rx": rx_check},
            "counters": encode_counters(self.driver.sample()),
        }

    def forget(self, rotation: str | None) -> None:
        """Let the nonce of a rotation die."""
        self.prepared.pop(rotation or "", None)


def _sa(prepared: Prepared, key: SaKey, sci: str) -> SaInstall:
    return SaInstall(prepared.an, prepared.cipher, sci, key.ssci, key.key_id, key.check, key.sak, key.salt)


def _rotation(op: Operation) -> str:
    if op.rotation is None:
        raise OperationRefused("no_rotation", "this kind of operation belongs to a rotation")
    return op.rotation
