"""Which operations an agent may carry out, and what it remembers of them (rotation.md section 4).

Per link: (token, holder, op_seq), durable before the act. Refused are a lower token, an equal token of
another holder, an op_seq not above the last, and an operation older than its time to act, counted from the
poll whose nonce it quotes. A repeat of an op_id is answered with the stored result; one that was begun and
never finished (the agent died in between) is answered `failed: interrupted`: the conductor reads first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from keymgmt.agents.state import ACKS_KEPT, StateFolder
from keymgmt.errors import OperationRefused
from keymgmt.operations import Ack, AckStatus, Operation

FILE: Final = "fence.json"
NONCES_KEPT: Final = 8


class Fenced(OperationRefused):
    """Refused by the fence.

    Attributes:
        known: {"last": the token or place that the agent holds}; the acknowledgement's result.
    """

    def __init__(self, code: str, message: str, known: Mapping[str, Any]) -> None:
        super().__init__(code, message)
        self.known = dict(known)


class Polls:
    """When this agent sent its latest polls, by nonce; in memory only."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def sent(self, nonce: str, now_ns: int) -> None:
        """Note a poll."""
        with self._lock:
            self._sent[nonce] = now_ns
            while len(self._sent) > NONCES_KEPT:
                self._sent.popitem(last=False)

    def age_ns(self, nonce: str, now_ns: int) -> int | None:
        """Return the age of a poll, None when this agent (life) sent none with this nonce lately."""
        with self._lock:
            sent = self._sent.get(nonce)
        return None if sent is None else now_ns - sent


class Fence:
    """The durable fence of one link end."""

    def __init__(self, state: StateFolder, link: str) -> None:
        self._state, self._link = state, link
        doc = state.read(FILE)
        self.token: int = doc.get("token", 0)
        self.holder: str = doc.get("holder", "")
        self.op_seq: int = doc.get("op_seq", 0)
        self._begun: str | None = doc.get("begun")
        self._acks: OrderedDict[str, dict[str, Any]] = OrderedDict(doc.get("acks", {}))

    def admit(self, op: Operation, polls: Polls, now_ns: int, boot_id: str) -> Ack | None:
        """Let an operation pass, durably, or return the answer to a repeat.

        Raises:
            Fenced: stale_token, stale_seq, expired or wrong_link.
        """
        if op.link != self._link:
            raise Fenced("wrong_link", "this agent keeps another link", {})
        if op.token < self.token:
            raise self._stale("a conductor with a higher token has been here")
        if op.token == self.token and op.holder != self.holder:
            raise self._stale("another conductor holds this token")
        stored = self._acks.get(op.op_id)
        if stored is not None:
            return self._repeat(op, stored)
        if op.op_id == self._begun:
            error = {"code": "interrupted", "detail": "the agent ended while it acted: read its state"}
            return self.finish(Ack(op.op_id, op.op_seq, op.token, AckStatus.FAILED, boot_id, error=error))
        if op.op_seq <= self.op_seq:
            known = {"last": self.op_seq}
            raise Fenced("stale_seq", "an operation of this or a later place was seen", known)
        age = polls.age_ns(op.poll_nonce, now_ns)
        if age is None or age > op.time_to_act_ms * 1_000_000:
            why = "it quotes no recent poll of this agent" if age is None else "its time to act has passed"
            raise Fenced("expired", why, {"last": self.op_seq})
        self.token, self.holder, self.op_seq, self._begun = op.token, op.holder, op.op_seq, op.op_id
        self._save()
        return None

    def _repeat(self, op: Operation, stored: Mapping[str, Any]) -> Ack:
        if op.token > self.token:
            self.token, self.holder = op.token, op.holder
            self._save()
        return Ack.from_json(stored)

    def finish(self, ack: Ack) -> Ack:
        """Store an answer durably, for repeats, and return it."""
        self._acks[ack.op_id] = ack.to_json()
        while len(self._acks) > ACKS_KEPT:
            self._acks.popitem(last=False)
        if self._begun == ack.op_id:
            self._begun = None
        self._save()
        return ack

    def _stale(self, message: str) -> Fenced:
        return Fenced("stale_token", message, {"last": self.token})

    def _save(self) -> None:
        doc = {"token": self.token, "holder": self.holder, "op_seq": self.op_seq, "begun": self._begun}
        self._state.write(FILE, doc | {"acks": dict(self._acks)})
