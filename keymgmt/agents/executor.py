"""Carries out one operation at one end, fenced, and answers it.

`done`; `failed`: it was tried, read the state; `refused`: nothing was touched. How a key gets into hardware
stands in `keymgmt.agents.keying`; nothing here touches key material.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from keymgmt.agents.config import AgentConfig
from keymgmt.agents.fence import Fence, Fenced, Polls
from keymgmt.agents.keying import UNWRITABLE, AgentKeys, HalfDoneError, Keying
from keymgmt.agents.state import Burnt
from keymgmt.checks import encode_counters
from keymgmt.drivers import SakDriver
from keymgmt.endstate import EndpointState
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
from keymgmt.operations import Ack, AckStatus, Operation, OpKind
from keymgmt.processes import where

CODES: Final[Mapping[type[KeymgmtError], str]] = {
    DriverUnavailable: "driver_unavailable",
    CustodyUnavailable: "custody_unavailable",
    CustodyRefused: "custody_refused",
}


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
        self._driver, self._burnt = driver, burnt
        self._fence, self._boot_id = fence, boot_id
        self._take_sample = take_sample
        self.keying = Keying(config, driver, keys, burnt)
        self._lock = threading.Lock()
        self._do: Mapping[OpKind, Callable[[Operation], dict[str, Any]]] = {
            OpKind.READ: self._read,
            OpKind.PREPARE: self.keying.prepare,
            OpKind.INSTALL: self.keying.install,
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
        except HalfDoneError as half:
            return self._ack(op, AckStatus.FAILED, {}, half.code, str(half))
        except (SaidNo, CouldNotTell) as error:
            code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "refused")
            return self._ack(op, AckStatus.FAILED, {}, code, str(error))
        except Exception as bug:  # a step of the journal must get an answer; the text could hold anything
            return self._ack(op, AckStatus.FAILED, {}, "internal", where(bug))

    def _ack(
        self, op: Operation, status: AckStatus, result: Mapping[str, Any], code: str = "", detail: str = ""
    ) -> Ack:
        error = {"code": code, "detail": detail or code} if code else None
        return Ack(op.op_id, op.op_seq, op.token, status, self._boot_id, result, error)

    # --- reading

    def _read(self, _op: Operation) -> dict[str, Any]:
        state = EndpointState.of(self._driver.read(), boot_id=self._boot_id, burnt=self._burnt.last())
        return {"state": state.to_json()}

    def _counters(self) -> dict[str, str]:
        return encode_counters(self._driver.sample())

    def _abandon(self, op: Operation) -> dict[str, Any]:
        """Delete what a rotation installed; never the SA in use for transmit, never another key."""
        self.keying.forget(op.rotation)
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
                raise HalfDoneError(no.code, str(no)) from None
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
