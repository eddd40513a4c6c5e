"""The step table of the SAK kind (rotation.md section 2): which step orders what, and how each is judged.

::

    survey -> [tidy tx -> tidy rx -> survey] -> prepare -> mint -> wrap -> install -> compare -> destroy
      -> baseline -> select a -> look b -> probe a -> verify b
                  -> select b -> look a -> probe b -> verify a -> confirm   (commit)
      -> overlap -> drain -> retire tx -> retire rx -> proof -> complete

    exits:  before a key exists                not started
            install, compare                   discard -> assess -> abandon -> readback -> rolled back
            destroy .. confirm                 [revert ->] assess -> abandon -> readback -> rolled back
            after the commit                   assess -> drain (forward only)
            an end cannot be read              parked: both keys stay installed, alarm
            another SecY lifetime at an end    settle -> rekeyed (a first keying follows)

First keying is the same table walked from no key. Receive stands before transmit because `install` is done at
both ends before `select`; a key is removed only by steps that follow a read of both ends.
"""

from __future__ import annotations

from typing import Any, Final

from keymgmt import rotation_sak_back as turn
from keymgmt import rotation_sak_forward as ahead
from keymgmt import rotation_sak_orders as orders
from keymgmt.model import LinkSpec
from keymgmt.rotation import PARKED, Move, Rotation, Step, Table

KIND: Final = "sak"
FIRST: Final = "survey"


def _not_started(_state: Rotation, _link: LinkSpec) -> Move:
    return Move(end="not started")


def _to(step: str) -> Any:
    def exit_(_state: Rotation, _link: LinkSpec) -> Move:
        return Move(step)

    return exit_


def _revert_first(state: Rotation, _link: LinkSpec) -> Move:
    return turn.back(state, "")


def _again(wait_ns: int) -> Any:
    def exit_(_state: Rotation, _link: LinkSpec) -> Move:
        return Move(again_ns=wait_ns)

    return exit_


def _overlap_time(link: LinkSpec) -> int:
    return link.profile.overlap_ns + link.profile.step_deadline_ns


TABLE: Final[Table] = {
    "survey": Step(orders.read_both, ahead.survey, _again(turn.REREAD_NS), _not_started),
    "tidy tx": Step(orders.removal("tx"), lambda *_: Move("tidy rx"), _not_started, _not_started),
    "tidy rx": Step(orders.removal("rx"), lambda *_: Move("survey"), _not_started, _not_started),
    "prepare": Step(orders.prepare, ahead.prepared, _not_started, _not_started),
    "mint": Step(orders.mint, ahead.minted, _not_started, _not_started),
    "wrap": Step(orders.wrap, ahead.wrapped, _to("settle"), _to("settle")),
    "install": Step(orders.install, ahead.installed, _to("discard"), _to("discard")),
    "compare": Step(orders.nothing, ahead.compared, _to("discard"), _to("discard")),
    "destroy": Step(orders.destroy, ahead.destroyed, _to("assess"), _to("assess")),
    "baseline": Step(orders.read_both, ahead.baseline, _to("assess"), _to("assess")),
    "select a": Step(orders.select("a"), ahead.selected("a"), _revert_first, _revert_first),
    "look b": Step(orders.look("b"), ahead.looked("b"), _revert_first, _revert_first),
    "probe a": Step(orders.probe("a"), ahead.probed("a"), _revert_first, _revert_first),
    "verify b": Step(orders.verify("b"), ahead.verified("b"), _revert_first, _revert_first),
    "select b": Step(orders.select("b"), ahead.selected("b"), _revert_first, _revert_first),
    "look a": Step(orders.look("a"), ahead.looked("a"), _revert_first, _revert_first),
    "probe b": Step(orders.probe("b"), ahead.probed("b"), _revert_first, _revert_first),
    "verify a": Step(orders.verify("a"), ahead.verified("a"), _revert_first, _revert_first),
    "confirm": Step(orders.confirm, ahead.confirmed, _to("assess"), _to("assess")),
    "overlap": Step(
        orders.nothing, ahead.overlap, _to("assess"), None, forward=False, deadline_ns=_overlap_time
    ),
    "drain": Step(orders.read_both, ahead.drain, _to("assess"), _to("assess"), forward=False),
    "retire tx": Step(
        orders.removal("tx"), lambda *_: Move("retire rx"), _to("proof"), _to("assess"), forward=False
    ),
    "retire rx": Step(
        orders.removal("rx"), lambda *_: Move("proof"), _to("proof"), _to("assess"), forward=False
    ),
    "proof": Step(orders.read_both, ahead.proof, _to("assess"), _to("assess"), forward=False),
    "discard": Step(orders.destroy, turn.discarded, _to("assess"), _to("assess"), forward=False),
    "revert": Step(orders.revert, turn.reverted, _to("assess"), _to("assess"), forward=False),
    "assess": Step(orders.read_both, turn.assess, _again(turn.REREAD_NS), _to(PARKED), forward=False),
    PARKED: Step(
        orders.read_both,
        turn.assess,
        _again(turn.REREAD_NS),
        None,
        forward=False,
        alarm="parked: an end cannot be read, both keys stay installed",
        deadline_ns=lambda _link: 0,
    ),
    "abandon": Step(orders.abandon, turn.abandoned, _to("readback"), _to("assess"), forward=False),
    "readback": Step(orders.read_both, turn.readback, _to("assess"), _to("assess"), forward=False),
    "settle": Step(
        orders.destroy,
        turn.settled,
        _again(turn.REREAD_NS),
        None,
        forward=False,
        alarm="the key store has not destroyed the wrapping key yet",
    ),
}
