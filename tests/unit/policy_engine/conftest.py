"""A gate over a database of its own."""

import pytest
from gate_scene import Scene

from evidence.database import Database


@pytest.fixture
async def scene(tmp_path):
    database = Database(tmp_path / "t.db")
    database.start()
    database.create_all()
    yield Scene(database)
    database.stop()
