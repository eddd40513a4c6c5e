"""One finished world for all package tests, which only read it, and the package exported from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from package_world import World, make, trust_of

from evidence.package.attacks import unpack
from evidence.package.build import Exported
from evidence.package.trust import Trust


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Exported]:
    """Made once; its database is at rest, so that no thread outlives the module that reads it."""
    made = make(tmp_path_factory.mktemp("package"))
    done = made.export()
    made.db.stop()
    return made, done


@pytest.fixture(scope="module")
def world(finished: tuple[World, Exported]) -> Iterator[World]:
    made, _ = finished
    made.db.start()
    yield made
    made.db.stop()


@pytest.fixture(scope="session")
def exported(finished: tuple[World, Exported]) -> Exported:
    return finished[1]


@pytest.fixture(scope="session")
def octets(exported: Exported) -> bytes:
    return exported.path.read_bytes()


@pytest.fixture(scope="session")
def trust(exported: Exported) -> Trust:
    return trust_of(exported)


@pytest.fixture(scope="session")
def scope_id(exported: Exported) -> str:
    return exported.predicate.ranges[0].scope_id


@pytest.fixture
def members(octets: bytes) -> dict[str, bytes]:
    return unpack(octets)
