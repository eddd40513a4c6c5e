"""The operator who cheats and holds the key: ranges, windows and words that must not verify."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from package_checks import refused, second_path
from package_world import DAY, END, HOUR, T0, World, decision, make, small, trust_of

from evidence import dsse
from evidence.canonical import canonical, decode_canonical
from evidence.errors import ExportRefused, PackageInvalid
from evidence.package import build, figures, html, pdf
from evidence.package import collect as collecting
from evidence.package.attacks import pack, sign_again
from evidence.package.collect import collect
from evidence.package.model import ENVELOPE, PAYLOAD_TYPE, Predicate
from evidence.package.trust import Trust
from evidence.package.verify import END_IS_STATED, VERIFIED, verify_octets
from evidence.view import LedgerView


def lying(world: World, monkeypatch: pytest.MonkeyPatch, begin: int, end: int) -> dict[str, bytes]:
    """The package that the operator's own build makes between two ticks of his choice."""

    def ticks(view, window, lateness_ns):
        return view.tick(begin), view.tick(end), []

    monkeypatch.setattr(collecting, "_ticks", ticks)
    monkeypatch.setattr(collecting, "_early", lambda view, scope_id, tick, from_ns: tick)
    got = world.db.read_sync(
        lambda conn: collect(
            LedgerView(conn), "acme", (T0, T0 + DAY), world.folder / "sources",
            now_ns=T0 + 2 * DAY, lateness_ns=0, custody="embedded (not separated)",
        )
    )  # fmt: skip
    return build.build(got, world.signer)


def test_a_range_that_begins_late_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path, logs=False)
    try:
        made.now = T0 + 10 * HOUR  # received in the window
        made.commit([decision("acme", 50, allowed=False, rules=("encryption.link",))])
        made.tick(T0 + 11 * HOUR)
        made.now = T0 + 12 * HOUR
        made.commit([decision("acme", 51, allowed=True)])
        made.tick(END)
        trust = trust_of(made.export())
        late = lying(made, monkeypatch, 2, 3)
        refused(late, trust, "8", "begins late")
        name = next(n for n in late if n.startswith("proofs/"))
        proofs = json.loads(late[name])
        for change in (
            {"before": None},
            {"before": proofs["before"] | {"header": proofs["before"]["header"].replace("17409", "17408")}},
            {"before": proofs["before"] | {"path": proofs["before"]["path"][:-1]}},
            {"before": proofs["before"] | {"header": "[]"}},
        ):
            refused(sign_again(late | {name: canonical(proofs | change)}, made.signer), trust, "8", name)
    finally:
        made.db.stop()


def test_a_range_that_ends_at_an_older_head_than_its_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(tmp_path, [decision("acme", 60, allowed=False)])
    try:
        trust = trust_of(made.export())
        head_proof = collecting._head_proof

        def newest(view, scope_id, tick, end):
            return head_proof(view, scope_id, tick, view.tick(view.tick_count() - 1))

        monkeypatch.setattr(collecting, "_head_proof", newest)
        monkeypatch.setattr(
            LedgerView, "checkpoint", lambda self, tick: self.tick(self.tick_count() - 1).note
        )
        evil = lying(made, monkeypatch, 0, 1)
        error = refused(evil, trust, "8", "older head")
        (tmp_path / "second").mkdir()
        assert error
        done = second_path(tmp_path / "second", evil, pack(evil), trust)
        assert (1, True) == (done.returncode, "checkpoint's head" in done.stderr), done.stderr
    finally:
        made.db.stop()


def test_a_range_that_ends_early_verifies_and_is_said_to_be_the_signers_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No leaf commits to the time of a checkpoint: one that was kept back can't be missed, only asked for."""
    made = small(tmp_path, [decision("acme", 61, allowed=False)])
    try:
        honest = verify_octets(made.export().path.read_bytes(), trust_of(made.export()))
        early = verify_octets(pack(lying(made, monkeypatch, 0, 0)), trust_of(made.export()))
        for verdict in (honest, early):
            assert (VERIFIED, END_IS_STATED) == (verdict.text, verdict.notes[-1])
        assert early.predicate.ranges[0].end < honest.predicate.ranges[0].end
    finally:
        made.db.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"custody": "HSM, separated, certified by X"},
        {"anchored": "anchored by TSA"},
        {"provisional": ("all is well",)},
        {"provisional": ("no checkpoint yet after the end of the window and its lateness bound",) * 2},
        {"tool": {"duckdb": "1", "reportlab": "1", "sluicegate": "1", "audited": "1"}},
        {"tool": {"duckdb": "1", "reportlab": "audited by X", "sluicegate": "1"}},
        {"window": (5, 5)},
    ],
)
def test_a_statement_with_words_of_the_operators_own_is_refused(
    members: dict[str, bytes], trust: Trust, world: World, change: dict
) -> None:
    evil = dict(members)
    body = decode_canonical(base64.b64decode(json.loads(members[ENVELOPE])["payload"]))
    predicate = replace(Predicate.decode(body["predicate"]), **change)
    value = body | {"predicate": predicate.encode()}

    evil[ENVELOPE] = dsse.seal(PAYLOAD_TYPE, canonical(value), world.signer)
    refused(evil, trust, "4")


def test_a_closed_window_that_was_not_over_is_refused(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    for change in ({"made_ns": T0 + DAY - 1}, {"lateness_ns": 3 * DAY}):
        evil = rendered(members, trust, world, **change)
        refused(evil, trust, "16", "before the end of its window")


def rendered(members: dict[str, bytes], trust: Trust, world: World, **change: int) -> dict[str, bytes]:
    """Figures and renderings that agree with a changed statement."""
    value = dict(verify_octets(pack(members), trust).figures)
    if "made_ns" in change:
        value["made"] = figures.utc(change["made_ns"])
    if "lateness_ns" in change:
        value["lateness_ns"] = str(change["lateness_ns"])
    evil = members | {
        "figures.json": figures.encode(value), "report.html": html.render(value), "report.pdf": pdf.render(value),
    }  # fmt: skip
    return sign_again(evil, world.signer, **change)


@pytest.mark.parametrize("window", [(0, 1 << 63), (0, (1 << 64) - 1), ((1 << 63), (1 << 63) + 1)])
def test_a_window_past_64_bits_is_refused_and_never_a_crash(
    members: dict[str, bytes], trust: Trust, world: World, window: tuple[int, int]
) -> None:
    with pytest.raises(PackageInvalid):
        verify_octets(pack(sign_again(members, world.signer, window=window)), trust)
    with pytest.raises(ExportRefused):
        world.export(window=window, name="wide.zip")
