"""The process that imports and exports: whatever fails, whoever started it reads one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.database import Database
from evidence.ledger import Ledger
from policy_engine.embedded.evidence_job import ledger_signer
from policy_engine.errors import StartError


def run(state: Path, *arguments: str) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "policy_engine.embedded.evidence_job", str(state), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """As a running system leaves it, but for its logs folder; nothing listens."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "endpoints.json").write_text("{}")
    db = Database(tmp_path / "sluicegate.db")
    db.start()
    db.create_all()
    Ledger.open(db)
    db.stop()
    return tmp_path


def test_where_nothing_runs_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    code, told = run(tmp_path / "state", "import", str(tmp_path))
    assert (1, "start it with `sluicegate up`") == (code, told["fix"])
    assert "nothing runs on" in str(told["error"])


def test_endpoints_that_cannot_be_read_are_told(state: Path) -> None:
    (state / "run" / "endpoints.json").write_text("{")
    code, told = run(state, "import", str(state))
    assert (1, True, False) == (code, "endpoints.json cannot be read" in str(told["error"]), told["refused"])


def test_what_a_killed_system_left_signs_nothing(state: Path) -> None:
    with pytest.raises(StartError, match="nothing runs on") as refused:
        ledger_signer(state)
    assert "start it with `sluicegate up`" == refused.value.fix


def test_whoever_asked_may_be_gone_when_the_answer_comes(state: Path) -> None:
    (state / "logs").mkdir()
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "policy_engine.embedded.evidence_job", str(state), "import", str(state)]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=100
    )
    os.close(writing)
    assert (1, "") == (done.returncode, done.stderr)


def test_a_log_that_cannot_be_kept_is_told(state: Path) -> None:
    code, told = run(state, "import", str(state))
    assert (1, True) == (code, str(told["error"]).endswith("evidence-job.log: No such file or directory"))


def test_what_cannot_be_read_is_told_and_logged(state: Path) -> None:
    (state / "logs").mkdir()
    code, told = run(state, "import", str(state))
    assert (1, True) == (code, "tenants.json" in str(told["error"]))
    assert "evidence_job_failed" in (state / "logs" / "evidence-job.log").read_text()
