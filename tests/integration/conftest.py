"""One running system for the tests that only look at it or that it recovers from by itself."""

import signal

import pytest
from running_system import Running


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("system")


@pytest.fixture(scope="session")
def running(root):
    stage = Running(root)
    try:
        stage.start()
        stage.all_open()
        yield stage
    finally:
        left = stage.stop()
    assert set() == left, "processes left behind by a clean stop"


@pytest.fixture
def system(running):
    """The running system, healthy before and after each test."""
    running.all_open()
    yield running
    running.signal(signal.SIGCONT)
    for agent in running.endpoints["data_planes"]:
        running.fault(agent, "clear")
    running.all_open()
