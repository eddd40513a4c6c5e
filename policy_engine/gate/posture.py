"""Posture: what may be said of one link right now, and of which class the reason is.

Pure. A gatherer (``gate.gather``) turns verified samples, the journal and declared state into one
:class:`LinkView`; the chain of small checks below names the first thing that is wrong. An empty
chain of findings is the only way to ``encrypted``: nothing is assumed.

Classes of reason (each closes in its own way, see ``gate.permits``):

* ``violation``: measured clear or integrity-only frames, or a wrong peer, confirmed by a second
  sample or by the agent's own report. Closes at once.
* ``policy``: what runs is not what is declared now. New work is refused at once, an open path is held up
  to ``max_hold`` as with ``unknown``.
* ``unknown``: could not tell (no sample, no proof, parked, too old). New work is refused, an open
  path is held up to ``max_hold``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

Encryption = Literal["required", "none"]
State = Literal["open", "closed", "none"]
Verdict = Literal["encrypted", "violation", "unknown"]
ReasonClass = Literal["violation", "policy", "unknown"]

# Reason constants: stable words, used in records, denials and `links --why`.
ENCRYPTED: Final = "encrypted"
NOT_REQUIRED: Final = "encryption_not_required"
NO_AGENTS: Final = "no_agents"
NEVER_KEYED: Final = "never_keyed"
ENCRYPTION_OFF: Final = "encryption_off"
MEASURED: Final = ("clear_sent", "clear_received", "config", "wrong_peer")  # codes of keymgmt.counters
UNCONFIRMED: Final = "violation_unconfirmed"
CIPHER_DIFFERS: Final = "cipher_differs"
GUARD_MISSING: Final = "guard_missing"
NO_SAMPLE: Final = "no_sample"
STALE_SAMPLE: Final = "stale_sample"
KEY_UNKNOWN: Final = "transmit_key_unknown"
NOT_PROVED: Final = "not_proved"
PARKED: Final = "rotation_parked"
HARD_AGE: Final = "key_past_hard_age"


@dataclass(frozen=True, slots=True)
class LinkPosture:
    """The few fields of a link that the admission context carries.

    Attributes:
        encryption: What the Link declares.
        state: ``open`` only while both ends report an open path: an end that is silent reports none, though
            its agent may hold the path; ``none`` when the link has no agents.
        posture: The verdict.
        reason: Reason constant of the first failing check, or ``encrypted``.
        since_ns: When this (posture, reason) began.
        fresh_until_ns: Past this moment the posture is unknown whatever it says here.
        generation: Grows by one at each change of (posture, reason, state).
    """

    encryption: Encryption
    state: State
    posture: Verdict
    reason: str
    since_ns: int
    fresh_until_ns: int
    generation: int


def is_fresh(fresh_until_ns: int, now_ns: int) -> bool:
    """Whether evidence counts now. The one rule: judging, showing and the pack `encryption` go by it."""
    return now_ns < fresh_until_ns


def as_of(posture: LinkPosture, now_ns: int) -> LinkPosture:
    """What a posture that was judged before says now: of evidence that has ended nothing is left."""
    if is_fresh(posture.fresh_until_ns, now_ns):
        return posture
    state: State = "closed" if posture.state == "open" else posture.state
    if posture.posture != "encrypted":
        return replace(posture, state=state)
    ended = posture.fresh_until_ns
    return replace(posture, state=state, posture="unknown", reason=STALE_SAMPLE, since_ns=ended)


@dataclass(frozen=True, slots=True)
class EndView:
    """What one end of a link last said, its signature already verified.

    Attributes:
        agent: Name of the agent (CN of its certificate).
        received_ns: When the control plane received the sample.
        protect: SecY protectFrames.
        encrypt: Confidentiality of the transmit SC.
        tx_key_id: Public id of the key it transmits with, ``None`` when it has none.
        proved_ns: When this end was last seen to decrypt frames of its peer (0: never).
        off_samples: Consecutive samples in which protection was off.
        measured: Code of a violation that two of its samples show and no repair has ended, or ``None``.
        reported: Code of a violation that the agent confirmed itself and no repair has ended, or ``None``.
        guard: Whether the guard is in place.
        path_open: Whether the data plane passes user traffic.
    """

    agent: str
    received_ns: int
    protect: bool
    encrypt: bool
    tx_key_id: str | None
    proved_ns: int
    off_samples: int
    measured: str | None
    reported: str | None
    guard: bool
    path_open: bool


@dataclass(frozen=True, slots=True)
class LinkView:
    """Everything the chain looks at: declared state, the journal's word, both ends.

    Attributes:
        name: Link name.
        encryption: Declared.
        cipher: Declared cipher suite.
        cipher_in_use: What the journal says the key in use was made for, empty when it does not say.
        ends: Last word of each end, ``None`` before its first sample.
        agents: Names of the agents that keep the ends, empty where there is none.
        keyed: Whether a first keying ever completed.
        parked: Whether the journal holds a parked rotation.
        key_since_ns: When the key in use was selected (0: unknown).
        hard_age_ns: Oldest key that may carry new work, 0 when the profile sets none.
        fresh_for_ns: How long one sample may be relied on.
        prove_within_ns: How recent the last proof by probes must be.
    """

    name: str
    encryption: Encryption
    cipher: str
    cipher_in_use: str
    ends: tuple[EndView | None, EndView | None]
    agents: tuple[str, str]
    keyed: bool
    parked: bool
    key_since_ns: int
    hard_age_ns: int
    fresh_for_ns: int
    prove_within_ns: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One failing check: the constant, its class, a sentence for a person, and the operator's next step.

    The step is empty where there is nothing to do but wait.
    """

    reason: str
    reason_class: ReasonClass
    message: str
    fix: str = ""


Check = Callable[[LinkView, int], Finding | None]


def _present(view: LinkView) -> list[EndView]:
    return [end for end in view.ends if end is not None]


def check_declared(view: LinkView, _now_ns: int) -> Finding | None:
    """A link that declares no encryption, or has no agents, can prove nothing."""
    if view.encryption == "none":
        return Finding(NOT_REQUIRED, "unknown", "the link declares no encryption and is never keyed")
    if not all(view.agents):
        return Finding(NO_AGENTS, "unknown", "no agents: give both endpoints of the Link an agent")
    return None


def check_protection(view: LinkView, _now_ns: int) -> Finding | None:
    """Protection is off at one end, or only integrity is left (readable frames, TCI E=0)."""
    for end in _present(view):
        if not (end.protect and end.encrypt) and view.keyed:
            if end.off_samples >= 2 or end.reported is not None:
                return Finding(
                    ENCRYPTION_OFF,
                    "violation",
                    f"{end.agent} reports that encryption is off",
                    f"turn encryption on at the end of {end.agent}; the gate reopens when that is measured",
                )
            return Finding(
                UNCONFIRMED, "unknown", f"{end.agent}: encryption off in one sample, not confirmed"
            )
    return None


def check_measured(view: LinkView, _now_ns: int) -> Finding | None:
    """Clear or readable frames, or a wrong peer, were measured and no repair has been measured since."""
    for end in _present(view):
        code = end.reported or end.measured
        if code is not None:
            return Finding(
                code,
                "violation",
                f"{end.agent} measured {code.replace('_', ' ')}",
                f"repair the end of {end.agent}; the gate reopens when that is measured",
            )
    return None


def check_keyed(view: LinkView, _now_ns: int) -> Finding | None:
    """Before the first key nothing is open."""
    if not view.keyed:
        return Finding(NEVER_KEYED, "unknown", "first keying has not completed")
    return None


def check_samples(view: LinkView, now_ns: int) -> Finding | None:
    """Both ends have spoken, recently enough."""
    for end, agent in zip(view.ends, view.agents, strict=True):
        if end is None:
            why = f"{agent} has sent no sample since the control plane started"
            return Finding(NO_SAMPLE, "unknown", why, f"start or repair agent {agent} or its data plane")
        if not _speaks(view, end, now_ns):
            age, bound = ((now_ns - end.received_ns) / 1e9, view.fresh_for_ns / 1e9)
            why = f"the last sample of {agent} is {age:.1f} s old; one is relied on for {bound:.1f} s"
            return Finding(STALE_SAMPLE, "unknown", why, f"start or repair agent {agent} or its data plane")
    return None


def _speaks(view: LinkView, end: EndView, now_ns: int) -> bool:
    return is_fresh(end.received_ns + view.fresh_for_ns, now_ns)


def check_guard(view: LinkView, _now_ns: int) -> Finding | None:
    """Without a guard a failing SecY could pass frames in clear."""
    for end in _present(view):
        if not end.guard:
            return Finding(
                GUARD_MISSING,
                "unknown",
                f"{end.agent} reports no guard on the wire",
                f"start the data plane of {end.agent} with its guard",
            )
    return None


def check_keys(view: LinkView, _now_ns: int) -> Finding | None:
    """Each end transmits with a key."""
    for end, agent in zip(view.ends, view.agents, strict=True):
        if end is None or end.tx_key_id is None:
            why = f"{agent} reports no transmit key: a new one follows by itself"
            return Finding(KEY_UNKNOWN, "unknown", why)
    return None


def check_cipher(view: LinkView, _now_ns: int) -> Finding | None:
    """What runs is what is declared now."""
    if view.cipher_in_use and view.cipher_in_use != view.cipher:
        why = f"the key in use is {view.cipher_in_use}, the profile declares {view.cipher}"
        return Finding(CIPHER_DIFFERS, "policy", why, f"sluicegate rotate {view.name}")
    return None


def check_proof(view: LinkView, now_ns: int) -> Finding | None:
    """A green interface is not evidence: probes must have been decrypted at both ends."""
    for end in _present(view):
        if now_ns - end.proved_ns > view.prove_within_ns:
            return Finding(
                NOT_PROVED,
                "unknown",
                f"{end.agent} has decrypted no probe of its peer recently",
                f"look at the wire and at the data planes of {' and '.join(view.agents)}",
            )
    return None


def check_parked(view: LinkView, _now_ns: int) -> Finding | None:
    """A parked rotation leaves an end's transmit key unknown."""
    if view.parked:
        fix = f"start or repair agents {' and '.join(view.agents)}"
        return Finding(PARKED, "unknown", "a rotation is parked: an end cannot be read", fix)
    return None


def check_age(view: LinkView, now_ns: int) -> Finding | None:
    """A key past its hard age carries no new work."""
    if view.hard_age_ns and view.key_since_ns and now_ns - view.key_since_ns > view.hard_age_ns:
        why = "the key in use is older than hardAge"
        return Finding(HARD_AGE, "unknown", why, f"sluicegate rotate {view.name}")
    return None


# Violations first: what was measured beats what could not be told.
CHAIN: Final[tuple[Check, ...]] = (
    check_declared,
    check_protection,
    check_measured,
    check_keyed,
    check_samples,
    check_guard,
    check_keys,
    check_cipher,
    check_proof,
    check_parked,
    check_age,
)


def first_finding(view: LinkView, now_ns: int) -> Finding | None:
    """The first failing check, or ``None``: then, and only then, the link is proved encrypted."""
    if not CHAIN:
        return Finding(NOT_PROVED, "unknown", "no checks: an empty chain proves nothing")
    for check in CHAIN:
        finding = check(view, now_ns)
        if finding is not None:
            return finding
    return None


def state_of(view: LinkView, now_ns: int) -> State:
    """Open only while both ends report an open path; what a silent end last said is no report."""
    if view.encryption == "none" or not all(view.agents):
        return "none"
    reports = (end is not None and _speaks(view, end, now_ns) and end.path_open for end in view.ends)
    return "open" if all(reports) else "closed"


def fresh_until(view: LinkView) -> int:
    """The moment from which this view may no longer be relied on (0 when an end never spoke)."""
    ends = _present(view)
    return min(end.received_ns for end in ends) + view.fresh_for_ns if len(ends) == 2 else 0


def judge(
    view: LinkView, now_ns: int, previous: LinkPosture | None = None
) -> tuple[LinkPosture, Finding | None]:
    """Judge one link.

    Args:
        view: What is known.
        now_ns: The time of judging.
        previous: The last posture, for ``since_ns`` and ``generation``.

    Returns:
        The posture, and the finding behind it (``None`` when it is ``encrypted``).
    """
    finding = first_finding(view, now_ns)
    verdict: Verdict = "encrypted"
    if finding is not None:
        verdict = "violation" if finding.reason_class == "violation" else "unknown"
    reason = ENCRYPTED if finding is None else finding.reason
    state = state_of(view, now_ns)
    since, generation = now_ns, 1
    if previous is not None:
        same = (previous.posture, previous.reason) == (verdict, reason)
        since = previous.since_ns if same else now_ns
        generation = previous.generation + (0 if same and previous.state == state else 1)
    posture = LinkPosture(view.encryption, state, verdict, reason, since, fresh_until(view), generation)
    return posture, finding
