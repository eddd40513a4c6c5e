"""Bodies of reviews over real TLS: bounded each, and all that are held at once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from admission_world import Connection, pod, review, running

from policy_engine.limits import LIMITS

BODY = json.dumps(review(pod())).encode()


@pytest.mark.parametrize(("room", "status"), [(len(BODY), 200), (len(BODY) - 1, 413)])
async def test_a_chunk_without_a_length_is_measured(tmp_path: Path, room: int, status: int) -> None:
    async with (
        running(tmp_path, limits=replace(LIMITS, review_body_bytes=room)) as world,
        world.connection("train-us") as connection,
    ):
        connection.writer.write(
            b"POST /admit/train-us HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
        )
        answer = await connection.reply()
        assert status == answer.status
        assert (status == 200) == answer.response["allowed"]
        assert ("close" if status == 413 else None) == answer.headers.get("connection")
        assert (status == 200) == len(world.records())


async def test_a_body_beyond_what_all_may_hold_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    def all_but_the_last_octet(connection: Connection) -> None:
        connection.writer.write(
            b"POST /admit/train-us HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
            % (len(BODY), BODY[:-1])
        )

    limits = replace(LIMITS, body_bytes_in_flight=len(BODY) * 3 // 2)
    async with (
        running(tmp_path, limits=limits) as world,
        world.connection("train-us") as first,
        world.connection("train-us") as second,
    ):
        all_but_the_last_octet(first)
        async with asyncio.timeout(5):
            while world.app.metrics.in_flight == 0:
                await asyncio.sleep(0.01)
            all_but_the_last_octet(second)
            refused = await second.reply()
            assert (429, "close") == (refused.status, refused.headers["connection"])
            assert "too many large bodies at once" in refused.message
            first.writer.write(BODY[-1:])
            assert (await first.reply()).allowed
        # What was refused is held no longer.
        async with world.connection("train-us") as third:
            all_but_the_last_octet(third)
            third.writer.write(BODY[-1:])
            assert (await third.reply()).allowed
        assert 2 == len(world.records())
