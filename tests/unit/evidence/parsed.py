"""A small file read wholly as the importer reads it, committing nothing: rows, quarantined lines, counts."""

from __future__ import annotations

from pathlib import Path

from evidence.sources.base import Counts, Line, LineReader, Row
from evidence.sources.importer import Format, _read


class MemoryQuarantine:
    """Leaves out durability: a list."""

    def __init__(self) -> None:
        self.kept: list[tuple[Line, str]] = []

    def keep(self, line: Line, reason: str) -> None:
        self.kept.append((line, reason))


class MemoryRows:
    """Stands for every scope's segment; a row that goes to two scopes is kept once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, row: Row, *_times: int | None) -> None:
        if not self.rows or self.rows[-1] is not row:
            self.rows.append(row)


def parse_all(path: Path, fmt: Format) -> tuple[list[Row], MemoryQuarantine, Counts]:
    kept, quarantine = MemoryRows(), MemoryQuarantine()
    with path.open("rb") as stream:
        counts = _read(LineReader(stream), fmt, lambda _scope: kept, quarantine, 1 << 63)
    return kept.rows, quarantine, counts
