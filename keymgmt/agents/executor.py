"""Carries out one operation at one end: what is checked before hardware is touched, and in which order.

Key material exists here only inside `install`: unwrapped, derived, handed to the driver, forgotten. The
nonces that `prepare` gives out live in memory, so that no wrap of an earlier life of this agent, and no wrap
of another rotation, can be installed (rotation.md 1.3).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from keymgmt.agents.config import AgentConfig
from keymgmt.agents.fence import Fence, Fenced, Polls
from keymgmt.agents.state import Burnt
from keymgmt.derive import SaKey, associated_data, check_plan, derive_pair
from keymgmt.drivers import Reading, SaInstall, SakDriver
from keymgmt.errors import (
    CouldNotTell,
    CustodyRefused,
    CustodyUnavailable,
    DriverRefused,
    DriverUnavailable,
    KeymgmtError,
    OperationRefused,
    SaidNo,
)
from keymgmt.operations import Ack, AckStatus, EndpointState, Operation, OpKind, encode_counters

PREPARED_KEPT: Final = 4
UNWRITABLE: Final = "state_unwritable"
CODES: Final[Mapping[type[KeymgmtError], str]] = {
    DriverUnavailable: "driver_unavailable",
    CustodyUnavailable: "custody_unavailable",
    CustodyRefused: "custody_refused",
}


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


class Executor:
    """One end's operations, one at a time.

    Args:
        take_sample: returns a fresh signed sample as JSON.
    """

    def __init__(
        self,
        config: AgentConfig,
        driver: SakDriver,
        keys: AgentKeys,
        fence: Fence,
        burnt: Burnt,
        *,
        boot_id: str,
        take_sample: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._config, self._driver, self._keys = config, driver, keys
        self._fence, self._burnt, self._boot_id = fence, burnt, boot_id
        self._take_sample = take_sample
        self._prepared: dict[str, Prepared] = {}
        self._lock = threading.Lock()
        self._do: Mapping[OpKind, Callable[[Operation], dict[str, Any]]] = {
            OpKind.READ: self._read,
            OpKind.PREPARE: self._prepare,
            OpKind.INSTALL: self._install,
            OpKind.SELECT_TX: self._select_tx,
            OpKind.PROBE: self._probe,
            OpKind.VERIFY: self._verify,
            OpKind.CONFIRM: self._confirm,
            OpKind.REVERT_TX: self._revert_tx,
            OpKind.SAMPLE: lambda _op: {"sample": dict(self._take_sample())},
            OpKind.RETIRE_TX: lambda op: self._retire(op, self._driver.retire_tx),
            OpKind.RETIRE_RX: lambda op: self._retire(op, self._driver.retire_rx),
            OpKind.ABANDON: self._abandon,
        }

    def run(self, op: Operation, polls: Polls, now_ns: int) -> Ack:
        """Carry out an operation, or say why not. Never raises for what an operation can cause."""
        with self._lock:
            try:
                repeat = self._fence.admit(op, polls, now_ns, self._boot_id)
            except Fenced as fenced:
                return self._ack(op, AckStatus.REFUSED, fenced.known, fenced.code, str(fenced))
            except OSError:  # a full disk: what cannot be fenced is not done
                return self._ack(op, AckStatus.REFUSED, {}, UNWRITABLE, "the fence cannot be stored")
            if repeat is not None:
                return repeat
            ack = self._act(op)
            try:
                return self._fence.finish(ack, in_memory=op.kind is OpKind.PREPARE)
            except OSError:
                why = "it was tried, but its result cannot be stored: read the state"
                return self._ack(op, AckStatus.FAILED, {}, UNWRITABLE, why)

    def _act(self, op: Operation) -> Ack:
        try:
            return self._ack(op, AckStatus.DONE, self._do[op.kind](op))
        except (OperationRefused, DriverRefused) as no:
            return self._ack(op, AckStatus.REFUSED, {}, no.code, str(no))
        except _HalfDoneError as half:
            return self._ack(op, AckStatus.FAILED, {}, half.code, str(half))
        except (SaidNo, CouldNotTell) as error:
            code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "refused")
            return self._ack(op, AckStatus.FAILED, {}, code, str(error))
        except Exception as bug:  # its text could hold anything: only its type is reported
            return self._ack(op, AckStatus.FAILED, {}, "internal", type(bug).__name__)

    def _ack(
        self, op: Operation, status: AckStatus, result: Mapping[str, Any], code: str = "", detail: str = ""
    ) -> Ack:
        error = {"code": code, "detail": detail or code} if code else None
        return Ack(op.op_id, op.op_seq, op.token, status, self._boot_id, result, error)

    # --- reading

    def _read(self, _op: Operation) -> dict[str, Any]:
        return {"state": endpoint_state(self._driver.read(), self._boot_id, self._burnt.last()).to_json()}

    def _counters(self) -> dict[str, str]:
        return encode_counters(self._driver.sample())

    # --- keys

    def _prepare(self, op: Operation) -> dict[str, Any]:
        params, rotation = op.params, _rotation(op)
        check_plan(self._config.sci, params["tx_sci"], params["rx_sci"], params["ssci"])
        if params["rx_sci"] != self._config.peer_sci:
            raise OperationRefused("plan_differs", "the plan's peer is not this end's peer")
        reading = self._driver.read()
        if any(sa.an == params["an"] for sa in (*reading.tx, *reading.rx)):
            raise OperationRefused("an_in_use", "the AN is not empty at this end")
        nonce = secrets.token_hex(16)
        self._prepared[rotation] = Prepared(nonce, params["an"], params["cipher"], reading.secy_id)
        while len(self._prepared) > PREPARED_KEPT:
            self._prepared.pop(next(iter(self._prepared)))
        return {"nonce": nonce}

    def _install(self, op: Operation) -> dict[str, Any]:
        rotation = _rotation(op)
        prepared = self._prepared.get(rotation)
        if prepared is None:
            raise OperationRefused("nonce_unknown", "no nonce of this agent's present life is out for it")
        if self._driver.read().secy_id != prepared.secy_id:
            raise OperationRefused("secy_changed", "the SecY began anew since prepare")
        ad = self._own_ad(rotation, prepared, op.params["ad"])
        if ad != op.params["ad"] or (op.params["an"], op.params["cipher"]) != (prepared.an, prepared.cipher):
            raise OperationRefused("plan_differs", "the associated data is not what this end prepared")
        if not op.params["ciphertext"].startswith(f"vault:v{op.params['key_version']}:"):
            raise OperationRefused("plan_differs", "the ciphertext is of another key version")
        data_key = self._keys.decrypt(self._config.link, op.params["ciphertext"], associated_data(ad))
        del self._prepared[rotation]  # one nonce, one install
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
            rx_check = self._driver.install_rx(_sa(prepared, rx, self._config.peer_sci), prepared.secy_id)
            tx_check = self._driver.install_tx(_sa(prepared, tx, self._config.sci), prepared.secy_id)
        except DriverRefused as no:
            raise _HalfDoneError(no.code, str(no)) from None
        return {
            "key_ids": {"tx": tx.key_id, "rx": rx.key_id},
            "checks": {"tx": tx_check, "rx": rx_check},
            "counters": self._counters(),
        }

    def _abandon(self, op: Operation) -> dict[str, Any]:
        """Delete what a rotation installed; never the SA in use for transmit, never another key."""
        self._prepared.pop(op.rotation or "", None)
        reading, ids = self._driver.read(), op.params["key_ids"]
        deleted = []
        try:
            for an in [sa.an for sa in reading.rx if sa.key_id == ids["rx"]]:
                self._driver.retire_rx(an, ids["rx"])
                deleted.append("rx")
            for an in [sa.an for sa in reading.tx if sa.key_id == ids["tx"] and not sa.in_use]:
                self._driver.retire_tx(an, ids["tx"])
                deleted.append("tx")
        except DriverRefused as no:
            if deleted:
                raise _HalfDoneError(no.code, str(no)) from None
            raise
        return {"deleted": deleted}

    def _retire(self, op: Operation, retire: Callable[[int, str], Mapping[str, int]]) -> dict[str, Any]:
        try:
            return {"finals": encode_counters(retire(op.params["an"], op.params["key_id"]))}
        except DriverRefused as no:
            if no.code == "ENOENT":  # gone already, or the AN holds another key, which stays
                return {"finals": {}}
            raise

    # --- transmit

    def _select_tx(self, op: Operation) -> dict[str, Any]:
        an, revert_after_ms = op.params["an"], op.params["revert_after_ms"]
        if not revert_after_ms:
            raise OperationRefused("no_revert", "a select needs a time after which it reverts")
        return {"encoding_an": an, "was": self._driver.select_tx(an, op.params["key_id"], revert_after_ms)}

    def _confirm(self, op: Operation) -> dict[str, Any]:
        self._driver.confirm(op.params["an"])
        return {"revert_pending": self._driver.read().revert_pending}

    def _revert_tx(self, op: Operation) -> dict[str, Any]:
        return {"encoding_an": self._driver.revert_tx(op.params["an"], op.params["key_id"])}

    # --- proof

    def _probe(self, op: Operation) -> dict[str, Any]:
        if self._driver.read().encoding_an != op.params["an"]:
            raise OperationRefused("an_not_in_use", "this AN is not the one in use for transmit")
        nonces, next_pn = self._driver.probe(op.params["count"], op.params["probe_id"])
        return {
            "sent": len(nonces),
            "nonces": list(nonces),
            "next_pn": str(next_pn),
            "counters": self._counters(),
        }

    def _verify(self, op: Operation) -> dict[str, Any]:
        reading = self._driver.read()
        if not any((sa.an, sa.key_id) == (op.params["an"], op.params["key_id"]) for sa in reading.rx):
            raise OperationRefused("no_such_sa", "no receive SA with this AN and key id")
        nonces = self._driver.seen(op.params["probe_id"])
        return {"seen": len(nonces), "nonces": list(nonces), "counters": self._counters()}


class _HalfDoneError(KeymgmtError):
    """Hardware refused after something was done: a key id burnt, an SA installed or deleted."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def endpoint_state(reading: Reading, boot_id: str, burnt: tuple[str, ...]) -> EndpointState:
    """Return a driver's reading with what only the agent knows."""
    return EndpointState(
        boot_id=boot_id,
        secy_id=reading.secy_id,
        protect=reading.protect,
        encrypt=reading.encrypt,
        validate=reading.validate,
        tx_sci=reading.tx_sci,
        encoding_an=reading.encoding_an,
        tx=reading.tx,
        rx_sci=reading.rx_sci,
        rx=reading.rx,
        burnt=burnt,
        path=reading.path,
        revert_pending=reading.revert_pending,
        counters=reading.counters,
        faults=reading.faults,
    )


def _sa(prepared: Prepared, key: SaKey, sci: str) -> SaInstall:
    return SaInstall(prepared.an, prepared.cipher, sci, key.ssci, key.key_id, key.check, key.sak, key.salt)


def _rotation(op: Operation) -> str:
    if op.rotation is None:
        raise OperationRefused("no_rotation", "this kind of operation belongs to a rotation")
    return op.rotation
