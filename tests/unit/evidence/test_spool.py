"""The spool: durable before answered, dense numbers, failure and recovery, kill -9 in a burst."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from evidence import spoolfile
from evidence.errors import RecordRefused, SpoolCorrupt, SpoolUnwritable
from evidence.limits import LIMITS
from evidence.spool import Spool


@pytest.fixture
def spool(tmp_path: Path):
    made = Spool(tmp_path, "webhook-0")
    made.start()
    yield made
    made.stop()


def put(spool: Spool, text: str) -> int:
    seq = spool.next_seq
    spool.append_sync(seq, text.encode())
    return seq


def texts(spool: Spool, seq: int = 0) -> list[str]:
    return [body.decode() for _, body in spool.read_from(seq, 100_000)]


def test_frames_come_back_in_order_and_numbers_are_dense(spool: Spool):
    assert [0, 1, 2] == [put(spool, text) for text in "abc"]
    assert [(1, b"b"), (2, b"c")] == spool.read_from(1)
    assert [(0, b"a")] == spool.read_from(0, 1)
    assert 3 == spool.next_seq == spool.durable


def test_numbers_and_frames_survive_a_restart(spool: Spool, tmp_path: Path):
    put(spool, "a")
    spool.stop()
    again = Spool(tmp_path, "webhook-0")
    again.start()
    assert 1 == put(again, "b")
    assert ["a", "b"] == texts(again)
    again.stop()


async def test_many_appends_share_one_fdatasync(spool: Spool, monkeypatch):
    syncs = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (syncs.append(fd), real(fd)))

    async def one(text: str) -> None:
        await spool.append(spool.next_seq, text.encode())

    await asyncio.gather(*[one(str(number)) for number in range(500)])
    assert [str(number) for number in range(500)] == texts(spool)
    assert len(syncs) < 50


async def test_nothing_is_answered_before_it_is_durable(spool: Spool, monkeypatch):
    synced = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)))
    for number in range(5):
        before = len(synced)
        await spool.append(spool.next_seq, b"x" * number)
        assert len(synced) > before


async def test_a_number_out_of_turn_is_a_bug(spool: Spool):
    put(spool, "a")
    with pytest.raises(RuntimeError):
        await spool.append(0, b"again")
    with pytest.raises(SpoolUnwritable):
        await spool.append(5, b"ahead")
    assert 1 == put(spool, "b")


async def test_a_cancelled_waiter_does_not_disturb_the_others(spool: Spool):
    first = asyncio.create_task(spool.append(spool.next_seq, b"a"))
    await asyncio.sleep(0)
    first.cancel()
    await spool.append(spool.next_seq, b"b")
    assert ["a", "b"] == texts(spool)


@pytest.mark.parametrize("call", ["write", "fdatasync", "open"])
async def test_a_full_disk_refuses_gives_numbers_back_and_recovers(spool: Spool, monkeypatch, call):
    put(spool, "kept")
    real = getattr(os, call)
    full = True

    def failing(*args, **kwargs):
        if full and (call != "open" or str(args[0]).endswith(spoolfile.SUFFIX)):
            if call == "write":
                real(args[0], bytes(args[1])[:7])  # part of it arrives
            raise OSError(errno.ENOSPC, "no space")
        return real(*args, **kwargs)

    if call == "open":  # only a new segment opens a file
        spool._writer._size = spool._limits.spool_segment_bytes
    monkeypatch.setattr(os, call, failing)
    results = await asyncio.gather(*[append(spool, f"lost{n}") for n in range(20)], return_exceptions=True)
    assert all(isinstance(one, SpoolUnwritable) for one in results)
    assert "No space left" in str(results[0])
    assert results[0].fix
    assert spool.failure == "No space left on device"
    assert 1 == spool.next_seq
    full = False
    assert 1 == put(spool, "after")
    assert spool.failure is None
    assert ["kept", "after"] == texts(spool)
    spool.stop()
    spool.start()
    assert ["kept", "after"] == texts(spool)
    assert 2 == put(spool, "on")


async def append(spool: Spool, text: str) -> None:
    await spool.append(spool.next_seq, text.encode())


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolUnwritable):
        Spool(tmp_path / "file", "s").start()


def test_two_processes_cannot_share_a_spool(spool: Spool, tmp_path: Path):
    with pytest.raises(SpoolUnwritable):
        Spool(tmp_path, "webhook-0").start()


async def test_a_stopped_spool_refuses(spool: Spool):
    spool.stop()
    with pytest.raises(SpoolUnwritable):
        await spool.append(0, b"x")


def test_a_frame_that_could_not_be_read_back_is_refused(spool: Spool):
    with pytest.raises(RecordRefused):
        spool.append_sync(0, bytes(spoolfile.BODY_OCTETS + 1))
    assert 0 == put(spool, "a")


def test_whatever_goes_wrong_in_the_worker_nobody_is_left_waiting(spool: Spool, monkeypatch):
    monkeypatch.setattr(spoolfile, "pack", lambda *_: 1 / 0)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            with pytest.raises(SpoolUnwritable):
                put(spool, "lost")
    assert ["ZeroDivisionError"] == [one["error"] for one in logged]
    monkeypatch.undo()
    assert 0 == put(spool, "kept")
    assert ["kept"] == texts(spool)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_spool_ids_are_plain_names(tmp_path: Path, name):
    with pytest.raises(ValueError, match="spool id"):
        Spool(tmp_path, name)


def test_segments_rotate_and_go_only_when_released(tmp_path: Path):
    spool = Spool(tmp_path, "s", replace(LIMITS, spool_segment_bytes=100))
    spool.start()
    for number in range(10):
        put(spool, f"{number:040d}")
    assert len(spoolfile.segments(spool.folder)) == 5
    spool.release(4)
    assert [4, 6, 8] == spoolfile.segments(spool.folder)
    assert 6 == len(texts(spool, 4))
    with pytest.raises(SpoolCorrupt):
        spool.read_from(0)
    spool.release(9)
    assert [8] == spoolfile.segments(spool.folder), "the last segment keeps the numbering"
    spool.stop()
    spool.start()
    assert 10 == spool.next_seq
    spool.stop()


def test_frames_that_the_ledger_does_not_take_are_bounded(tmp_path: Path):
    spool = Spool(tmp_path, "s", replace(LIMITS, spool_bytes=200, spool_segment_bytes=100))
    spool.start()
    while spool.octets <= 200:
        put(spool, "x" * 40)
    with pytest.raises(SpoolUnwritable, match="wait for the ledger"):
        put(spool, "one more")
    spool.release(spool.next_seq - 1)
    put(spool, "goes on")
    spool.stop()


def test_numbers_that_the_ledger_has_are_never_given_out_again(tmp_path: Path):
    spool = Spool(tmp_path, "s")
    spool.start(at_least=500)
    assert 500 == put(spool, "x")
    spool.ensure_next(400)
    spool.ensure_next(900)
    assert 900 == put(spool, "y")
    assert ["y"] == texts(spool, 900)
    spool.stop()
    spool.start()
    assert 901 == spool.next_seq
    spool.stop()


def test_acknowledged_damage_stops_the_start_and_frees_the_lock(tmp_path: Path):
    spool = Spool(tmp_path, "s")
    spool.start()
    for text in "abc":
        put(spool, text)
    spool.stop()
    path = spoolfile.path_of(spool.folder, 0)
    data = path.read_bytes()
    path.write_bytes(b"X" + data[1:])
    with pytest.raises(SpoolCorrupt, match="frame 0"):
        spool.start()
    path.write_bytes(data)
    spool.start()
    assert ["a", "b", "c"] == texts(spool)
    spool.stop()


def test_a_real_limit_on_file_size_refuses_and_recovers(tmp_path: Path):
    """The kernel, not a fake, refuses the write; after the limit is lifted the spool goes on by itself."""
    code = """
        import resource, sys
        from evidence.errors import SpoolUnwritable
        from evidence.spool import Spool
        spool = Spool(sys.argv[1], "s"); spool.start()
        kept = 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        try:
            while True:
                spool.append_sync(spool.next_seq, b"x" * 999); kept += 1
        except SpoolUnwritable as error:
            assert "too large" in str(error), error
        assert spool.next_seq == kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        spool.append_sync(spool.next_seq, b"after")
        frames = spool.read_from(0, 10**6)
        assert [seq for seq, _ in frames] == list(range(kept + 1)) and frames[-1][1] == b"after"
        spool.stop(); spool.start()
        assert spool.read_from(0, 10**6) == frames
        print("ok", kept)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok ")
