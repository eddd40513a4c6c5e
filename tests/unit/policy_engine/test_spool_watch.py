"""The spool's trouble is logged once when it begins and once when it ends, whatever is asked meanwhile."""

from structlog.testing import capture_logs

from evidence.limits import LIMITS
from policy_engine.embedded.chores import SpoolWatch


class Spool:
    failure = None
    octets = 0


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
