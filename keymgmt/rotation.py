"""The engine of a key rotation: immutable state, outcomes in, commands out. Pure; `now_ns` is given.

A rotation is a walk over a *step table* (`keymgmt.rotation_sak` for SAKs; a CAK table has the same form).
The engine knows no MACsec: it asks the table which commands a step needs, collects one outcome for each, and
lets the step judge them. It is level-triggered: `outstanding()` names what is still owed at any moment, so a
conductor that was killed anywhere reads the journalled state and goes on. Rules (rotation.md section 2):

* every step has an exit for a refused command and one for its deadline, or waits for ever *by name* (parked);
* a command is identified by (rotation, serial, slot); the serial rises on each move, so that a repeated order
  is recognised by the agent and an old one can never be mistaken for a new one;
* nothing is removed by the engine on its own: only steps that read both ends order a removal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from keymgmt.errors import IllegalStep, KeymgmtError
from keymgmt.model import LinkSpec, Side

End = Literal["complete", "rolled back", "rekeyed", "not started"]
Status = Literal["done", "failed", "refused"]
PARKED: Final = "parked"
OVERDUE: Final = "the rotation has passed its total time: an operator is needed"
_MOST_MOVES: Final = 16  # steps without commands that may follow each other


@dataclass(frozen=True, slots=True)
class Command:
    """One thing to be done for the present step.

    Attributes:
        slot: unique in the step; "a", "b", "a.1", "kms".
        kind: an operation kind, or "mint", "wrap", "destroy" for the key store.
        side: the end whose agent acts; None for the key store.
    """

    slot: str
    kind: str
    side: Side | None
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one command. `why` is for people and holds no secret."""

    status: Status
    result: Mapping[str, Any] = field(default_factory=dict, repr=False)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Where to go and what to remember. `end` closes the rotation; `again_ns` repeats the step later."""

    step: str = ""
    why: str = ""
    memo: Mapping[str, Any] = field(default_factory=dict, repr=False)
    end: End | None = None
    again_ns: int | None = None


Judge = Callable[["Rotation", LinkSpec, int], Move | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a step table.

    Attributes:
        commands: what the step orders; empty for a pure step or a wait.
        judge: called when every command is done; None means "not yet", asked again on the next tick.
        failed: the exit when a command was refused or failed.
        late: the exit when `step_deadline_ns` passes; None waits for ever, raising `alarm` instead.
        forward: the total deadline applies (everything before the commit).
    """

    commands: Callable[[Rotation, LinkSpec], tuple[Command, ...]]
    judge: Judge
    failed: Callable[[Rotation, LinkSpec], Move]
    late: Callable[[Rotation, LinkSpec], Move] | None = None
    forward: bool = True
    alarm: str = ""
    deadline_ns: Callable[[LinkSpec], int] = lambda link: link.profile.step_deadline_ns


Table = Mapping[str, Step]


@dataclass(frozen=True, slots=True)
class Passed:
    """One step that was left: what evidence and `links` show."""

    step: str
    entered_ns: int
    left_ns: int
    to: str
    why: str


@dataclass(frozen=True, slots=True)
class Rotation:
    """The whole state of one rotation, as it stands in the journal.

    Attributes:
        waits: why a polling step asks again.
        cause: the first reason to turn back.
        why: why it ended as it did; empty for a plain completion.
    """

    kind: str
    link: str
    rotation: str
    reason: str
    started_ns: int
    step: str
    entered_ns: int
    serial: int = 0
    not_before_ns: int = 0
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    memo: Mapping[str, Any] = field(default_factory=dict, repr=False)
    trail: tuple[Passed, ...] = ()
    waits: str = ""
    cause: str = ""
    alarm: str = ""
    end: End | None = None
    why: str = ""

    @property
    def parked(self) -> bool:
        """True while an end cannot be read: both keys stay, an operator is told."""
        return self.step == PARKED

    def result(self, slot: str) -> Mapping[str, Any]:
        """The result of a done command of the present step."""
        return self.outcomes[slot].result

    def command_id(self, slot: str) -> str:
        """The identity of a command; equal after a restart, different after every move."""
        return f"{self.rotation}-{self.serial}-{slot}"

    def to_json(self) -> dict[str, Any]:
        """Return the journal's JSON object; 64-bit times are decimal strings."""
        doc: dict[str, Any] = {
            name: getattr(self, name) for name in ("kind", "link", "rotation", "reason", "step", "serial")
        }
        doc |= {name: str(getattr(self, name)) for name in _TIMES}
        doc |= {"v": 1, "alarm": self.alarm, "end": self.end, "why": self.why, "memo": dict(self.memo)}
        doc |= {"waits": self.waits, "cause": self.cause}
        doc["outcomes"] = {s: [o.status, dict(o.result), o.why] for s, o in self.outcomes.items()}
        doc["trail"] = [[p.step, str(p.entered_ns), str(p.left_ns), p.to, p.why] for p in self.trail]
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            IllegalStep: a journal of an unknown version.
        """
        if doc.get("v") != 1:
            raise IllegalStep("the journal holds a rotation of another version", fix="run the newer program")
        fields = {name: doc[name] for name in _PLAIN} | {name: int(doc[name]) for name in _TIMES}
        return cls(
            **fields,
            outcomes={s: Outcome(o[0], o[1], o[2]) for s, o in doc["outcomes"].items()},
            trail=tuple(Passed(t[0], int(t[1]), int(t[2]), t[3], t[4]) for t in doc["trail"]),
        )


_TIMES: Final = ("started_ns", "entered_ns", "not_before_ns")
_PLAIN: Final = (
    *("kind", "link", "rotation", "reason", "step", "serial"),
    *("memo", "waits", "cause", "alarm", "end", "why"),
)


def begin(link: LinkSpec, *, kind: str, first: str, rotation: str, reason: str, now_ns: int) -> Rotation:
    """A rotation at the first step of its table. `rotation` is a fresh id, unique for ever."""
    return Rotation(kind, link.name, rotation, reason, now_ns, first, now_ns)


def outstanding(state: Rotation, link: LinkSpec, table: Table, now_ns: int) -> tuple[Command, ...]:
    """The commands of the present step that have no outcome yet; empty once the rotation ended."""
    if state.end is not None or now_ns < state.not_before_ns:
        return ()
    owed = table[state.step].commands(state, link)
    return tuple(command for command in owed if command.slot not in state.outcomes)


def with_outcome(  # noqa: PLR0917 - the five inputs of the protocol, in the order of `tick`
    state: Rotation, link: LinkSpec, table: Table, slot: str, outcome: Outcome, now_ns: int
) -> Rotation:
    """The state after one command came to an outcome.

    Raises:
        IllegalStep: the present step has no such open command (a caller's bug).
    """
    if state.end is not None or slot not in {c.slot for c in table[state.step].commands(state, link)}:
        raise IllegalStep(f"step {state.step} has no command {slot}")
    if slot in state.outcomes:
        raise IllegalStep(f"step {state.step} has an outcome for {slot} already")
    told = replace(state, outcomes={**state.outcomes, slot: outcome})
    return tick(told, link, table, now_ns)


def tick(state: Rotation, link: LinkSpec, table: Table, now_ns: int) -> Rotation:
    """Let time pass: judge what is complete, take the exit of what is late."""
    for _ in range(_MOST_MOVES):
        move = _next(state, link, table, now_ns)
        if move is None:
            return _alarmed(state, link, table, now_ns)
        ahead = move.step in table and table[move.step].forward
        state = _moved(state, move, forward=ahead, now_ns=now_ns)
        if state.end is not None:
            return state
    raise IllegalStep(f"step {state.step} moves without end")


def wakes_ns(state: Rotation, link: LinkSpec, table: Table) -> int:
    """The next instant at which `tick` could change something without an outcome."""
    step = table[state.step]
    return max(state.not_before_ns, min(state.entered_ns + step.deadline_ns(link), _total(state, link)))


def _next(state: Rotation, link: LinkSpec, table: Table, now_ns: int) -> Move | None:
    """The move that is due, or None. A step that only repeats itself is ended by its deadline."""
    step = table[state.step]
    failed = next((o for o in state.outcomes.values() if o.status != "done"), None)
    due: Move | None = None
    if failed is not None:
        due = step.failed(state, link)
        due = replace(due, why=due.why or failed.why)
    elif now_ns >= state.not_before_ns and not outstanding(state, link, table, now_ns):
        due = _judged(step, state, link, now_ns)
    if due is not None and due.again_ns is None:
        return due
    if step.late is not None and _late(step, state, link, now_ns):
        exit_ = step.late(state, link)
        waited = due.why if due is not None else ""
        late = f"step {state.step} passed its deadline"
        return replace(exit_, why=exit_.why or waited or state.waits or late)
    return due


def _judged(step: Step, state: Rotation, link: LinkSpec, now_ns: int) -> Move | None:
    """A judge that cannot read what an agent sent says so; that is an outcome, not a crash."""
    try:
        return step.judge(state, link, now_ns)
    except (KeymgmtError, KeyError, ValueError, TypeError) as error:
        exit_ = step.failed(state, link)
        return replace(exit_, why=f"unreadable result in step {state.step}: {type(error).__name__}")


def _late(step: Step, state: Rotation, link: LinkSpec, now_ns: int) -> bool:
    over = now_ns >= state.entered_ns + step.deadline_ns(link)
    return step.late is not None and (over or (step.forward and now_ns >= _total(state, link)))


def _total(state: Rotation, link: LinkSpec) -> int:
    return state.started_ns + link.profile.total_deadline_ns


def _moved(state: Rotation, move: Move, *, forward: bool, now_ns: int) -> Rotation:
    memo = {k: v for k, v in {**state.memo, **move.memo}.items() if v is not None}
    if move.again_ns is not None:
        later = now_ns + move.again_ns
        return replace(
            state, serial=state.serial + 1, outcomes={}, not_before_ns=later, memo=memo, waits=move.why
        )
    to = move.end or move.step
    # The first reason to turn back is the one that people need; later ones are its consequences.
    cause = state.cause or (move.why if not forward else "")
    return replace(
        state,
        step=move.step or state.step,
        entered_ns=now_ns,
        serial=state.serial + 1,
        not_before_ns=0,
        outcomes={},
        memo=memo,
        trail=(*state.trail, Passed(state.step, state.entered_ns, now_ns, to, move.why)),
        waits="",
        cause=cause,
        alarm="",
        end=move.end,
        why=(cause or move.why) if move.end else "",
    )


def _alarmed(state: Rotation, link: LinkSpec, table: Table, now_ns: int) -> Rotation:
    step = table[state.step]
    over = now_ns >= _total(state, link)
    alarm = step.alarm or (OVERDUE if over else "")
    overdue = over or now_ns >= state.entered_ns + step.deadline_ns(link)
    # Nothing new is the same object: an unchanged state is neither written nor acted upon twice.
    return replace(state, alarm=alarm) if overdue and alarm != state.alarm else state
