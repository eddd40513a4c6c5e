"""The spool's trouble is logged once when it begins and once when it ends, whatever is asked meanwhile."""

import asyncio
import errno
import os

from admission_world import pod, review, running
from structlog.testing import capture_logs

from evidence.limits import LIMITS
from policy_engine.embedded.chores import SpoolWatch


class Spool:
    failure = None
    octets = 0


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_one_line_each_way():
    spool = Spool()
    watch = SpoolWatch(spool)
    with capture_logs() as lines:
        for failure in (None, "No space left on device", "No space left on device", None, None):
            spool.failure = failure
            assert failure == watch.trouble
            await watch.look()
    assert ["spool_unwritable", "spool_writable_again"] == [line["event"] for line in lines]
    assert "No space left on device" == lines[0]["reason"]


def test_a_full_spool_is_trouble_too():
    spool = Spool()
    spool.octets = LIMITS.spool_bytes + 1
    assert SpoolWatch(spool).trouble.startswith("full: ")


async def test_readiness_comes_back_by_itself_when_nobody_asks_any_more(tmp_path, monkeypatch):
    """Not ready withdraws the traffic, so no decision may be needed to find the disk free again."""
    async with running(tmp_path) as world:
        watch = SpoolWatch(world.spool)
        with monkeypatch.context() as disk:
            disk.setattr(world.spool._writer, "write", full)
            assert not (await world.ask(review(pod()))).allowed
            assert "No space left on device" == watch.trouble
            await asyncio.sleep(1.2)  # longer than one attempt to write the summary
            assert "No space left on device" == watch.trouble
        async with asyncio.timeout(10):
            while watch.trouble is not None:
                await asyncio.sleep(0.05)
        assert ["decision_summary"] == [record.header_fields()["kind"] for record in world.records()]
