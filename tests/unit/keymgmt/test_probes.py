from __future__ import annotations

from typing import Any

import pytest

from keymgmt.probes import judge_probe

SENT = ["01", "02", "03"]
BEFORE = {"rxsa.1.InPktsOK": 0, "rxsc.InOctetsDecrypted": 1000, "rxsc.InPktsNotValid": 7}
AFTER = BEFORE | {"rxsa.1.InPktsOK": 3, "rxsc.InOctetsDecrypted": 1000 + 3 * 48}


def outcome(**changes: Any) -> tuple[str, str]:
    fields: dict[str, Any] = {"an": 1, "sent": SENT, "seen": SENT, "before": BEFORE, "after": AFTER}
    verdict = judge_probe(**(fields | changes))
    return verdict.outcome, verdict.why


def test_all_probes_decrypted_with_flat_errors_is_verified() -> None:
    assert "verified" == outcome()[0]


@pytest.mark.parametrize(
    "name",
    [
        "rxsc.InPktsNotValid",
        "rxsc.InPktsNotUsingSA",
        "rxsc.InPktsLate",
        "rxsc.InOctetsValidated",
        "secy.InPktsNoTag",
    ],
)
def test_a_risen_error_counter_fails(name: str) -> None:
    found, why = outcome(after=AFTER | {name: AFTER.get(name, 0) + 1}, seen=[])
    assert "failed" == found
    assert name in why


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seen": SENT[:2]}, "unknown"),
        ({"seen": []}, "unknown"),
        ({"sent": [], "seen": []}, "unknown"),
        ({"seen": [*SENT, "ff"]}, "failed"),
        ({"after": BEFORE}, "failed"),
        ({"after": AFTER | {"rxsc.InOctetsDecrypted": 1000}}, "failed"),
        ({"an": 2}, "failed"),
    ],
    ids=[
        "one missing",
        "silence",
        "none sent",
        "never sent",
        "no count",
        "validated only",
        "under another SA",
    ],
)
def test_less_than_proof_is_not_verified(changes: dict[str, Any], expected: str) -> None:
    assert expected == outcome(**changes)[0]
