"""What all sources share: their declaration, bounded reading, parsed rows and quarantine.

Nothing in a file may vanish: lines read = rows + duplicates + quarantined + blank, and the importer
checks that sum before it commits anything.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import orjson

from evidence.durable import make_folder, sync_folder
from evidence.errors import SourceRefused
from evidence.limits import LIMITS

SourceClass = Literal["chained", "blocking", "counted", "best-effort"]

#: The canonical value domain of a row: text, or an integer below 2^53. Absent values are left out.
Row = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Info:
    """What a source module says of its format (ledger.md section 6).

    Attributes:
        name: module name, as in records.
        version: parser version; changes whenever a row could come out differently.
        source_class: chained, blocking, counted or best-effort. Only the first three carry a negative
            statement; of a best-effort source a package says "none reported".
        time_means: received, completed or emitted.
        resolution_ns: smallest step of the reported time, nanoseconds.
        known_delay: how late a line may arrive, in words.
    """

    name: str
    version: str
    source_class: SourceClass
    time_means: Literal["received", "completed", "emitted"]
    resolution_ns: int
    known_delay: str


class Unparsed(Exception):  # noqa: N818 -- a verdict on one line, caught at once, never an outcome
    """One line can't be read in exactly one way; its text is a reason fit for a record."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source object.

    Attributes:
        number: from 1.
        offset: of its first octet.
        raw: its octets without the line end.
        whole: false where the line is over-long, and `raw` only how it begins.
    """

    number: int
    offset: int
    raw: bytes
    whole: bool = True


@dataclass(slots=True)
class Counts:
    """What became of every line."""

    lines: int = 0
    rows: int = 0
    blank: int = 0
    header: int = 0
    duplicates: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def quarantine(self, reason: str) -> None:
        """Count one line set aside, by reason."""
        self.quarantined += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def adds_up(self) -> bool:
        """Whether nothing vanished."""
        return self.lines == self.rows + self.blank + self.header + self.duplicates + self.quarantined


class Quarantine(Protocol):
    """Where raw lines go that were not understood: never the ledger, never a package."""

    def keep(self, line: Line, reason: str) -> None:
        """Keep the raw octets of one line, retrievable by number and offset."""


class FileQuarantine:
    """Quarantine in one NDJSON file, mode 0600, raw octets as base64.

    Leaves out encryption at rest: put the folder on an encrypted volume. Created on the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def keep(self, line: Line, reason: str) -> None:
        """Append one line."""
        if self._file is None:
            make_folder(self.path.parent, 0o700)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(fd, "wb")
        entry = {
            "line": line.number,
            "offset": line.offset,
            "reason": reason,
            "raw": base64.b64encode(line.raw).decode(),
        }
        self._file.write(orjson.dumps(entry) + b"\n")

    def close(self) -> None:
        """Make the lines and the file's name durable."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove what this import kept: its object was refused."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self.path.unlink(missing_ok=True)


class LineReader:
    """Reads a source object once, in bounded memory; knows its SHA-256 and size at the end.

    A line over the limit is not cut into pieces that could pass for lines: its first octets are handed on
    as one `Line` that is not whole (which every parser refuses) and the rest is skipped.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """Hex digest of every octet read; valid after the iteration ended."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[Line]:
        """Yield lines; the last needs no line end."""
        limit = LIMITS.source_line
        number = 0
        while chunk := self._read(limit + 1):
            number += 1
            offset = self.size - len(chunk)
            whole = chunk.endswith(b"\n") or len(chunk) <= limit
            if not whole:
                self._skip_rest(chunk, limit)
            if number > LIMITS.source_lines:
                raise SourceRefused(
                    f"the object has more than {LIMITS.source_lines} lines",
                    fix="split it and import the parts",
                )
            yield Line(number, offset, chunk.rstrip(b"\n").removesuffix(b"\r"), whole)

    def _read(self, n: int) -> bytes:
        chunk = self._stream.readline(n)
        self._hash.update(chunk)
        self.size += len(chunk)
        return chunk

    def _skip_rest(self, chunk: bytes, limit: int) -> None:
        while len(chunk) > limit and not chunk.endswith(b"\n"):
            chunk = self._read(limit + 1)
            if not chunk or len(chunk) <= limit:
                return


def text_of(line: Line) -> str:
    """The line as text.

    Raises:
        Unparsed: over-long, not UTF-8, or with control characters (a tab is one).
    """
    if not line.whole or len(line.raw) > LIMITS.source_line:
        raise Unparsed("line too long")
    try:
        text = line.raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Unparsed("not UTF-8") from None
    if any(ch < " " or ch == "\x7f" for ch in text):
        raise Unparsed("control character")
    return text


def event_id(source: str, raw: bytes) -> str:
    """The id of one reported event: the same line gives the same id, in whatever scope and import."""
    return hashlib.sha256(source.encode() + b"\x00" + raw).hexdigest()[:32]


def present(values: Mapping[str, str | int | None]) -> Row:
    """Drop what is absent: absent fields are omitted in canonical rows."""
    return {k: v for k, v in values.items() if v is not None}
