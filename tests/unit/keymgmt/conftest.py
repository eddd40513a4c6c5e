"""Helpers of these tests lie beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bao_server import Bao  # noqa: E402


@pytest.fixture(scope="session")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    """One real, provisioned OpenBao for all tests that need one (marked slow)."""
    server = Bao(tmp_path_factory.mktemp("bao"))
    yield server
    server.stop()
