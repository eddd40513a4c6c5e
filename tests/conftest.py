"""Shared by all tests: where the public sample data lies, and how hypothesis runs on slow machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tables of all packages are known to `Database.create_all`, whichever test file runs alone.
import evidence.store
import keymgmt.store
import policy_engine.store

TABLES = (evidence.store, keymgmt.store, policy_engine.store)

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "sluicegate", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sluicegate")


@pytest.fixture(scope="session")
def samples() -> Path:
    """The public sample data, read in place; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SLUICEGATE_SAMPLES", ROOT.parent / "shared" / "samples"))
    if not folder.is_dir():
        pytest.skip("no public sample data (set SLUICEGATE_SAMPLES)")
    return folder


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Known-answer vectors of our own."""
    return ROOT / "tests" / "vectors"
