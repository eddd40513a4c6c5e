"""Segment files: every truncation point and every flipped octet either keeps what was durable or says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import spoolfile
from evidence.errors import SpoolCorrupt

BODIES = [b"", b"a", b"SGF1" * 5, b"x" * 40, b"last"]


def segment(folder: Path, first: int, bodies: list[bytes], batch: int = 1) -> bytes:
    """Write a segment as the spool does, `batch` frames to a group commit."""
    data = b"".join(
        spoolfile.pack(first + at, first + at - at % batch, body) for at, body in enumerate(bodies)
    )
    spoolfile.path_of(folder, first).write_bytes(data)
    return data


def bodies_in(folder: Path, durable: int) -> list[bytes]:
    return [body for _, body in spoolfile.Reader(folder).read(0, durable, 1000)]


def whole_frames(data: bytes, size: int) -> int:
    return len(list(spoolfile.frames(data[:size], 0)))


def test_every_truncation_keeps_all_whole_frames_and_cuts_the_rest(tmp_path: Path):
    data = segment(tmp_path, 0, BODIES)
    path = spoolfile.path_of(tmp_path, 0)
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        count = whole_frames(data, size)
        following, octets = spoolfile.recover(tmp_path)
        assert (count, path.stat().st_size) == (following, octets)
        assert BODIES[:count] == bodies_in(tmp_path, following)
        assert (following, octets) == spoolfile.recover(tmp_path)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.integers(1, 4), st.data())
def test_truncated_anywhere_with_any_tail_of_zeros_it_recovers(tmp_path_factory, bodies, batch, data):
    folder = tmp_path_factory.mktemp("spool")
    octets = segment(folder, 0, bodies, batch)
    size = data.draw(st.integers(0, len(octets)))
    spoolfile.path_of(folder, 0).write_bytes(octets[:size] + bytes(data.draw(st.integers(0, 90))))
    following, _ = spoolfile.recover(folder)
    assert bodies[:following] == bodies_in(folder, following)
    # More than the whole frames only where the tail happens to be the octets that were cut off.
    assert following >= whole_frames(octets, size)


def test_every_flipped_octet_before_the_last_group_is_corruption_and_nothing_is_cut(tmp_path: Path):
    data = segment(tmp_path, 0, BODIES)
    path = spoolfile.path_of(tmp_path, 0)
    last = len(spoolfile.pack(0, 0, BODIES[-1]))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        if at < len(data) - last:
            with pytest.raises(SpoolCorrupt):
                spoolfile.recover(tmp_path)
            assert bytes(changed) == path.read_bytes()
        else:
            # The last group was perhaps never acknowledged: nothing says that it was durable.
            assert len(BODIES) - 1 == spoolfile.recover(tmp_path)[0]


def test_damage_inside_the_last_group_is_a_torn_tail(tmp_path: Path):
    data = bytearray(segment(tmp_path, 0, [b"one", b"two", b"three"], batch=3))
    data[5] ^= 1
    spoolfile.path_of(tmp_path, 0).write_bytes(data)
    assert (0, 0) == spoolfile.recover(tmp_path)


def test_a_missing_or_shortened_middle_segment_is_corruption(tmp_path: Path):
    segment(tmp_path, 0, [b"a", b"b"])
    middle = segment(tmp_path, 2, [b"c", b"d"])
    segment(tmp_path, 4, [b"e"])
    assert 5 == spoolfile.recover(tmp_path)[0]
    path = spoolfile.path_of(tmp_path, 2)
    path.write_bytes(middle[:-1])
    with pytest.raises(SpoolCorrupt):
        spoolfile.recover(tmp_path)
    path.unlink()
    with pytest.raises(SpoolCorrupt):
        spoolfile.recover(tmp_path)


def test_what_a_failed_write_left_behind_the_next_segment_is_ignored_and_cut(tmp_path: Path):
    good = segment(tmp_path, 0, [b"a", b"b"])
    path = spoolfile.path_of(tmp_path, 0)
    path.write_bytes(good + spoolfile.pack(2, 2, b"never acknowledged") + b"torn")
    segment(tmp_path, 2, [b"c"])
    assert [b"a", b"b", b"c"] == bodies_in(tmp_path, 3)
    assert 3 == spoolfile.recover(tmp_path)[0]
    assert good == path.read_bytes()


def test_the_first_segment_may_begin_anywhere_and_may_be_empty(tmp_path: Path):
    assert (0, 0) == spoolfile.recover(tmp_path)
    segment(tmp_path, 900, [])
    assert (900, 0) == spoolfile.recover(tmp_path)


def test_a_reader_goes_on_where_it_ended_and_can_go_back(tmp_path: Path):
    segment(tmp_path, 0, [bytes([n]) * 50 for n in range(10)])
    segment(tmp_path, 10, [bytes([n]) * 50 for n in range(10, 14)])
    reader = spoolfile.Reader(tmp_path)
    for start, count in ((0, 3), (3, 4), (7, 100), (2, 2), (12, 1), (4, 9)):
        found = reader.read(start, 14, count)
        assert [(n, bytes([n]) * 50) for n in range(start, min(14, start + count))] == found
    assert [] == reader.read(14, 14, 5)
    with pytest.raises(SpoolCorrupt):
        reader.read(14, 15, 5)


def test_a_frame_longer_than_a_stretch_is_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(spoolfile, "_STRETCH_OCTETS", 64)
    bodies = [b"s", b"x" * 500, b"t"]
    segment(tmp_path, 0, bodies)
    assert bodies == bodies_in(tmp_path, 3)


def test_a_new_reader_finds_a_frame_behind_more_than_one_stretch(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(spoolfile, "_STRETCH_OCTETS", 200)
    segment(tmp_path, 0, [bytes([n]) * 50 for n in range(20)])
    assert [(18, bytes([18]) * 50)] == spoolfile.Reader(tmp_path).read(18, 20, 1)
    with pytest.raises(SpoolCorrupt):
        spoolfile.Reader(tmp_path).read(20, 21, 1)
