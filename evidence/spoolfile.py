"""Segment files of a spool: framing, reading, and cutting a torn tail. No threads.

A frame is `SGF1`, length u32, CRC-32 u32, sequence u64, synced u64 (all big-endian), then the body; the
checksum covers sequence, synced and body. `synced` is the number of frames that were durable when this one
was written. That tells the two kinds of damage apart: an invalid frame that a later frame calls durable is
corruption of something acknowledged, and nothing is cut; any other damage is the torn tail of a write
that nobody was answered for.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.durable import sync_folder
from evidence.errors import SpoolCorrupt
from evidence.limits import LIMITS

MAGIC = b"SGF1"
SUFFIX = ".spool"
_HEAD = struct.Struct(">4sIIQQ")
_COVERED = struct.Struct(">QQ")
HEAD_OCTETS = _HEAD.size
BODY_OCTETS = 2 * LIMITS.record_bytes  # octets of the longest body
_STRETCH_OCTETS = 4 * 1024 * 1024  # octets read at once


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as read: its number, how much was durable before it, its body, where it ends."""

    seq: int
    synced: int
    body: bytes
    end: int


def pack(seq: int, synced: int, body: bytes) -> bytes:
    """Return the octets of a frame."""
    checksum = zlib.crc32(body, zlib.crc32(_COVERED.pack(seq, synced)))
    return _HEAD.pack(MAGIC, len(body), checksum, seq, synced) + body


def unpack(data: bytes, offset: int) -> Frame | None:
    """Return the frame at an offset, or None where there is no whole, intact one."""
    if len(data) - offset < HEAD_OCTETS:
        return None
    magic, length, checksum, seq, synced = _HEAD.unpack_from(data, offset)
    begin = offset + HEAD_OCTETS
    if magic != MAGIC or length > BODY_OCTETS or begin + length > len(data):
        return None
    body = data[begin : begin + length]
    if zlib.crc32(body, zlib.crc32(_COVERED.pack(seq, synced))) != checksum:
        return None
    return Frame(seq, synced, body, begin + length)


def frames(data: bytes, first: int, offset: int = 0, *, bound: int | None = None) -> Iterator[Frame]:
    """Yield intact frames numbered from `first` upward, until one is missing or `bound` is reached.

    The next segment begins at `bound`: whatever stands behind it here is left over from a failed write.
    """
    while first != bound and (frame := unpack(data, offset)) is not None and frame.seq == first:
        yield frame
        first, offset = first + 1, frame.end


def path_of(folder: Path, first: int) -> Path:
    """Return the path of the segment that begins with this sequence number."""
    return folder / f"{first:020d}{SUFFIX}"


def segments(folder: Path) -> list[int]:
    """Return the first sequence number of each segment, ascending."""
    return sorted(int(path.stem) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def recover(folder: Path) -> tuple[int, int]:
    """Check all segments, cut the torn tail of the last one, and tell where writing goes on.

    What is kept is durable when this returns. A process that was killed between write and fdatasync leaves
    frames that only the page cache has; the next one would count them as durable, and go on behind them.

    Args:
        folder: The spool's folder.

    Returns:
        The next sequence number, and the octets kept in all segments.

    Raises:
        SpoolCorrupt: Something acknowledged is damaged or missing.
        OSError: It cannot be read, cut or made durable.
    """
    firsts, octets, following = segments(folder), 0, 0
    for first, bound in zip(firsts, [*firsts[1:], None], strict=False):
        path = path_of(folder, first)
        data = path.read_bytes()
        following, end = first, 0
        for frame in frames(data, first, bound=bound):
            following, end = frame.seq + 1, frame.end
        if bound is not None and following != bound:
            raise _corrupt(folder, following)
        if end != len(data):
            if _later_frame_claims(data, end, following):
                raise _corrupt(folder, following)
            _cut(path, end)
        elif bound is None:
            _sync(path)
        octets += end
    sync_folder(folder)
    return following, octets


class Writer:
    """Writes frames and makes them durable; one thread only.

    A segment whose write or fdatasync failed is cut back to what is durable and never written again: after a
    failed fdatasync nobody knows what the page cache still holds.
    """

    def __init__(self, folder: Path, segment_octets: int) -> None:
        self._folder = folder
        self._segment_octets = segment_octets
        self._file: int | None = None
        self._size = 0  # octets of the open segment that are durable

    def write(self, first: int, bodies: Sequence[bytes]) -> int:
        """Write frames numbered from `first` with one fdatasync; return the octets written.

        Raises:
            OSError: None of them is durable; call `abandon`.
        """
        if self._file is None or self._size >= self._segment_octets:
            self.close()
            self._file = self._open(first)
        data = b"".join([pack(first + at, first, body) for at, body in enumerate(bodies)])
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        self._size += len(data)
        return len(data)

    def abandon(self) -> None:
        """Cut the open segment back to what is durable, and write to it no more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
        self.close()

    def close(self) -> None:
        """Close the open segment; the next write begins a new one."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _open(self, first: int) -> int:
        # Where a segment of this number exists, it holds nothing durable: its only write failed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path_of(self._folder, first), flags, 0o600)
        try:
            sync_folder(self._folder)
        except OSError:
            os.close(file)
            raise
        self._size = 0
        return file


class Reader:
    """Reads durable frames in order, going on where it ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cursor = (-1, 0, 0)  # segment, offset in it, number of the frame there

    def read(
        self, seq: int, durable: int, count: int, octets: int = LIMITS.sequencer_octets
    ) -> list[tuple[int, bytes]]:
        """Return up to `count` frames from number `seq` on, all below number `durable`; one at least.

        Args:
            seq: Number of the first.
            durable: Frames below this number are durable.
            count: Frames at most.
            octets: Where as many have been read, no further stretch of the file is.

        Raises:
            SpoolCorrupt: A durable frame is missing.
        """
        result: list[tuple[int, bytes]] = []
        held = 0
        while seq < durable and len(result) < count and held < octets:
            before = self._cursor
            found = self._read_segment(seq, min(durable, seq + count - len(result)))
            if not found and self._cursor != before:
                continue  # a stretch of frames that were read before; the wanted one stands behind it
            if not found:
                raise _corrupt(self._folder, seq)
            result += found
            held += sum(len(body) for _, body in found)
            seq = result[-1][0] + 1
        return result

    def _read_segment(self, seq: int, until: int) -> list[tuple[int, bytes]]:
        """Return frames [seq, until) as far as they stand in one stretch of one segment."""
        firsts = segments(self._folder)
        first = max((one for one in firsts if one <= seq), default=-1)
        bound = min((one for one in firsts if one > seq), default=until)
        segment, offset, at = self._cursor
        if segment != first or at > seq:
            offset, at = 0, first
        found: list[tuple[int, bytes]] = []
        for frame in self._stretch(first, offset, at, min(until, bound)):
            self._cursor = (first, offset + frame.end, frame.seq + 1)
            if frame.seq >= seq:
                found.append((frame.seq, frame.body))
        return found

    def _stretch(self, first: int, offset: int, at: int, bound: int) -> Iterator[Frame]:
        """Yield frames from an offset on; reads a few MiB, more only while no frame fits."""
        size = _STRETCH_OCTETS
        try:
            with path_of(self._folder, first).open("rb") as file:
                while True:
                    file.seek(offset)
                    data = file.read(size)
                    if unpack(data, 0) is not None or len(data) < size:
                        break
                    size *= 2
        except OSError:
            raise _corrupt(self._folder, at) from None
        yield from frames(data, at, bound=bound)


def _later_frame_claims(data: bytes, offset: int, seq: int) -> bool:
    """Tell whether an intact frame behind the damage says that frame `seq` was durable."""
    at = data.find(MAGIC, offset)
    while at >= 0:
        frame = unpack(data, at)
        if frame is not None and frame.synced > seq:
            return True
        at = data.find(MAGIC, at + 1)
    return False


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _corrupt(folder: Path, seq: int) -> SpoolCorrupt:
    return SpoolCorrupt(
        f"spool {folder.name}: acknowledged frame {seq} is damaged or missing",
        fix="keep the folder as it is, and put the segment back from a copy of it",
    )
