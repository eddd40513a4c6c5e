"""The spool when a commit fails, when it stops, when its process was killed; and what is synced to disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import spoolfile
from evidence.errors import SpoolUnwritable
from evidence.limits import LIMITS
from evidence.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spools", "webhook-0")
    made.start()
    yield made
    made.stop()


def put(spool: Spool, text: str) -> int:
    seq = spool.next_seq
    spool.append_sync(seq, text.encode())
    return seq


def texts(spool: Spool) -> list[str]:
    return [body.decode() for _, body in spool.read_from(0, 100_000)]


class Held:
    """An fdatasync that waits until it is let go; the first one then fails, where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()
        self._real, self._error = os.fdatasync, error
        monkeypatch.setattr(os, "fdatasync", self)

    def __call__(self, descriptor: int) -> None:
        self.reached.set()
        assert self.let_go.wait(20)
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._real(descriptor)


async def test_what_was_numbered_behind_a_failed_commit_fails_with_it(spool: Spool, monkeypatch) -> None:
    held = Held(monkeypatch, OSError(errno.EIO, "device"))
    first = spool.submit(0, b"a")
    await asyncio.to_thread(held.reached.wait, 20)
    behind = [spool.submit(seq, b"b") for seq in (1, 2)]
    held.let_go.set()
    results = await asyncio.gather(first, *behind, return_exceptions=True)
    assert [SpoolUnwritable] * 3 == [type(one) for one in results]
    monkeypatch.undo()
    assert 0 == put(spool, "after")
    assert ["after"] == texts(spool)


async def test_a_spool_that_is_stopping_takes_nothing_more_and_keeps_what_it_took(
    spool: Spool, monkeypatch
) -> None:
    held = Held(monkeypatch, None)
    taken = spool.submit(0, b"taken")
    await asyncio.to_thread(held.reached.wait, 20)
    stopping = asyncio.create_task(asyncio.to_thread(spool.stop))
    while not spool._stopping:
        await asyncio.sleep(0.001)
    with pytest.raises(SpoolUnwritable, match="not running"):
        spool.submit(1, b"late")
    held.let_go.set()
    await asyncio.gather(taken, stopping)
    spool.start()
    assert ["taken"] == texts(spool)


def test_a_loop_that_is_closed_holds_up_no_other_waiter(spool: Spool, monkeypatch) -> None:
    held, waits = Held(monkeypatch, None), Future()

    async def submit() -> None:
        spool.submit(0, b"nobody waits")
        await asyncio.to_thread(held.reached.wait, 20)

    asyncio.run(submit())
    spool._submit(1, b"waits", waits)
    held.let_go.set()
    waits.result(20)
    assert ["nobody waits", "waits"] == texts(spool)


def test_what_was_refused_does_not_come_back_after_a_restart(spool: Spool, monkeypatch) -> None:
    put(spool, "kept")

    def fails(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fdatasync", fails)  # the octets were written, and are not known to be durable
    with pytest.raises(SpoolUnwritable):
        put(spool, "refused")
    monkeypatch.undo()
    spool.stop()
    spool.start()
    assert (["kept"], 1) == (texts(spool), spool.next_seq)


def test_what_a_killed_process_left_is_durable_before_anything_is_built_on_it(
    tmp_path: Path, synced: list[Path]
) -> None:
    """Frames that only the page cache has, then one behind them in a segment of its own, then a power loss."""
    path = spoolfile.path_of(tmp_path, 0)
    path.write_bytes(spoolfile.pack(0, 0, b"never acknowledged"))
    assert 1 == spoolfile.recover(tmp_path)[0]
    assert [path, tmp_path] == synced


def test_a_cut_is_durable_before_anything_is_built_on_it(tmp_path: Path, synced: list[Path]) -> None:
    path = spoolfile.path_of(tmp_path, 0)
    path.write_bytes(spoolfile.pack(0, 0, b"whole") + b"torn")
    assert 1 == spoolfile.recover(tmp_path)[0]
    assert [path, tmp_path] == synced


def test_a_spools_folder_has_a_durable_name_before_it_is_used(tmp_path: Path, synced: list[Path]) -> None:
    spool = Spool(tmp_path / "spools", "s")
    spool.start()
    assert [tmp_path, tmp_path / "spools", spool.folder] == synced
    spool.stop()


def test_a_segment_has_a_durable_name_before_its_first_frame_is_answered(
    tmp_path: Path, synced: list[Path]
) -> None:
    spool = Spool(tmp_path, "s", replace(LIMITS, spool_segment_bytes=60))
    spool.start()
    synced.clear()
    counts = []
    for _ in range(4):  # two frames to a segment
        put(spool, "x" * 20)
        counts.append(synced.count(spool.folder))
    assert [1, 1, 2, 2] == counts
    spool.stop()


def test_a_length_past_the_limit_is_no_frame_though_its_checksum_holds(monkeypatch) -> None:
    data = spoolfile.pack(0, 0, b"x" * 10)
    monkeypatch.setattr(spoolfile, "BODY_OCTETS", 10)
    assert spoolfile.unpack(data, 0) is not None
    monkeypatch.setattr(spoolfile, "BODY_OCTETS", 9)
    assert spoolfile.unpack(data, 0) is None


def test_a_batch_is_bounded_by_octets_and_has_one_frame_at_least(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(spoolfile, "_STRETCH_OCTETS", 64)
    spool = Spool(tmp_path, "s", replace(LIMITS, sequencer_octets=100))
    spool.start()
    for size in (40, 40, 40, 40, 500):
        spool.append_sync(spool.next_seq, bytes(size))
    assert [[0, 1, 2], [3, 4], [4]] == [[seq for seq, _ in spool.read_from(at)] for at in (0, 3, 4)]
    spool.stop()
