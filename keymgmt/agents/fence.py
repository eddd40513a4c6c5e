"""Which operations an agent may carry out, and what it remembers of them (rotation.md section 4).

Per link: (token, holder, op_seq), durable before the act. Refused are a lower token, an equal token of
another holder, an op_seq not above the last, and an operation older than its time to act, counted from the
poll whose nonce it quotes. A repeat of an op_id is answered with the stored result; one that was begun and
never finished (the agent died in between) is answered `failed: interrupted`: the conductor reads first. So is
a repeat of `prepare` in another life of the agent, whose nonce died with the memory it was in. When the fence
cannot be stored (a full disk), OSError is raised, nothing has changed and nothing may be done.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from keymgmt.agents.state import ACKS_KEPT, StateFolder, unreadable
from keymgmt.checks import Check, is_count, is_map, is_str, opt, take
from keymgmt.errors import MessageRefused, OperationRefused
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
        try:
            got = take(doc, _FILE, FILE) if doc else {}
        except MessageRefused:
            raise unreadable(FILE) from None
        self.token: int = got.get("token", 0)
        self.holder: str = got.get("holder", "")
        self.op_seq: int = got.get("op_seq", 0)
        self._begun: str | None = got.get("begun")
        self._acks: OrderedDict[str, dict[str, Any]] = OrderedDict(got.get("acks", {}))
        self._in_memory: set[str] = set()

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
        if self._begun is not None:
            self.finish(_interrupted(self._begun, self.op_seq, self.token, boot_id))
        stored = self._acks.get(op.op_id)
        if stored is not None:
            return self._repeat(op, stored)
        if op.op_seq <= self.op_seq:
            known = {"last": self.op_seq}
            raise Fenced("stale_seq", "an operation of this or a later place was seen", known)
        age = polls.age_ns(op.poll_nonce, now_ns)
        if age is None or age > op.time_to_act_ms * 1_000_000:
            why = "it quotes no recent poll of this agent" if age is None else "its time to act has passed"
            raise Fenced("expired", why, {"last": self.op_seq})
        self._save(token=op.token, holder=op.holder, op_seq=op.op_seq, begun=op.op_id)
        return None

    def _repeat(self, op: Operation, stored: Mapping[str, Any]) -> Ack:
        if op.token > self.token:
            self._save(token=op.token, holder=op.holder)
        return Ack.from_json(stored)

    def finish(self, ack: Ack, *, in_memory: bool = False) -> Ack:
        """Store an answer durably, for repeats, and return it.

        Args:
            ack: the answer.
            in_memory: its result dies with this life of the agent; what is stored says `interrupted`.
        """
        self._acks[ack.op_id] = ack.to_json()
        if in_memory:
            self._in_memory.add(ack.op_id)
        while len(self._acks) > ACKS_KEPT:
            self._in_memory.discard(self._acks.popitem(last=False)[0])
        self._save(begun=None if self._begun == ack.op_id else self._begun)
        return ack

    def _stale(self, message: str) -> Fenced:
        return Fenced("stale_token", message, {"last": self.token})

    def _save(self, **changes: Any) -> None:
        """Store the fence with these changes; they hold only once they are durable."""
        now: dict[str, Any] = {
            "token": self.token,
            "holder": self.holder,
            "op_seq": self.op_seq,
            "begun": self._begun,
        }
        after = now | changes
        self._state.write(FILE, after | {"acks": {name: self._kept(name) for name in self._acks}})
        self.token, self.holder, self.op_seq = after["token"], after["holder"], after["op_seq"]
        self._begun = after["begun"]

    def _kept(self, op_id: str) -> dict[str, Any]:
        doc = self._acks[op_id]
        if op_id not in self._in_memory:
            return doc
        return _interrupted(op_id, doc["op_seq"], doc["token"], doc["boot_id"]).to_json()


def _interrupted(op_id: str, op_seq: int, token: int, boot_id: str) -> Ack:
    error = {"code": "interrupted", "detail": "the agent ended while or after it acted: read its state"}
    return Ack(op_id, op_seq, token, AckStatus.FAILED, boot_id, error=error)


_FILE: Final[Mapping[str, Check]] = {
    "token": is_count,
    "holder": lambda v: isinstance(v, str),
    "op_seq": is_count,
    "begun": opt(is_str),
    "acks": is_map,
}
