"""Every limit of the evidence package, with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that keep work, memory and disk finite."""

    record_bytes: int = 8 * 1024 * 1024  # octets of one record's three parts together
    note_bytes: int = 64 * 1024  # octets of a signed note
    note_signatures: int = 16  # signature lines of a signed note
    spool_segment_bytes: int = 16 * 1024 * 1024  # octets after which a new segment file begins
    spool_bytes: int = 4 * 1024 * 1024 * 1024  # octets of frames not yet sequenced; more is refused
    spool_batch_frames: int = 4096  # frames of one group commit
    spool_gather_us: int = 4_000  # microseconds that a commit waits for more frames, only under load
    spool_gather_from: int = 4  # frames of the last commit from which on that counts as load
    sequencer_batch: int = 1000  # records of one ledger transaction
    sequencer_octets: int = 32 * 1024 * 1024  # octets of records after which a batch takes no more
    sequencer_idle_ms: int = 50  # milliseconds between looks when nothing came
    write_group_ms: int = 50  # milliseconds that one database transaction may collect writes
    busy_timeout_ms: int = 10_000  # milliseconds that SQLite waits for a lock
    readers: int = 4  # reader connections kept open
    tick_seconds: float = 60.0  # seconds between ticks (1 s in the demo)
    key_changes: int = 256  # signing keys that one ledger may announce: a verifier checks each signature
    source_line: int = 64 * 1024  # octets of one line of an imported log
    source_lines: int = 5_000_000  # lines of one imported object
    hostlist_hosts: int = 20_000  # hosts that one node list may name
    listing_hosts: int = 20_000_000  # hosts that the node lists of one job listing may name together
    package_bytes: int = 4 * 1024 * 1024 * 1024 - 1  # octets of a package (no ZIP64)
    package_members: int = 10_000  # files in a package
    package_line: int = 16 * 1024 * 1024  # octets of one line in a package's NDJSON
    package_json: int = 64 * 1024 * 1024  # octets of one JSON document in a package


LIMITS = Limits()
