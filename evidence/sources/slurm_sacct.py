"""Slurm accounting: the text of `sacct --parsable2 --duplicates` with an explicit delimiter.

Decides which runs of which jobs there were, on which nodes, when. A run is keyed by (cluster, JobIDRaw,
submit, restart): ids are reused and jobs are requeued, so an id alone names nothing. A running job has no
end ("Unknown", or 0): that is an open interval, not 1970. Times without a zone are refused unless the
zone is given, never taken as UTC. A step (`.batch`, `.extern`, `.0`) is a row, but not a job.

Best asked as: `SLURM_TIME_FORMAT=%s sacct -a -P --duplicates --delimiter='|' -o
JobIDRaw,JobID,Cluster,Account,User,State,Submit,Start,End,Restarts,NodeList` (sacct(1)).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evidence.errors import SourceRefused, SourceUnreadable
from evidence.limits import LIMITS
from evidence.sources.base import Info, Line, Row, Unparsed, event_id, present, text_of
from evidence.sources.hostlist import expand

INFO = Info(
    name="slurm_sacct",
    version="1",
    source_class="best-effort",
    time_means="emitted",
    resolution_ns=1_000_000_000,
    known_delay="until slurmdbd has the end record",
)

_NO_TIME = frozenset({"", "Unknown", "None", "0", "N/A"})
_JOB_ID = re.compile(
    r"(?P<base>\d{1,12})(?:_(?P<task>\d{1,9})|_\[(?P<pending>[0-9,:%-]+)\]|\+(?P<het>\d{1,6}))?"
    r"(?:\.(?P<step>[A-Za-z0-9_+-]{1,40}))?"
)
_STATE = re.compile(r"([A-Z_]+)\+?(?: by .{1,64})?")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(Z|[+-]\d\d:?\d\d)?")
_I63 = 1 << 63
_CLUSTER = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_FREE_TEXT = frozenset(
    {"JobName", "Comment", "AdminComment", "SystemComment", "Extra", "WorkDir", "SubmitLine", "StdOut"}
    | {"StdErr", "StdIn", "Container", "Reason", "WCKey"}
)
_REQUIRED = ("Submit", "Start", "End", "State", "NodeList")


@dataclass(slots=True)
class Sacct:
    """Parser of one listing; holds what one line can't know (columns, restart order).

    Attributes:
        cluster: name when the listing has no Cluster column.
        delimiter: as given to `sacct --delimiter`; it must not occur in names.
        zone: IANA zone of the text times; None when they are `%s` seconds or carry an offset.
        columns: None when the first line is the header that sacct prints.
    """

    cluster: str | None = None
    delimiter: str = "|"
    zone: str | None = None
    columns: Sequence[str] | None = None
    _tz: ZoneInfo | None = field(default=None, init=False)
    _closed: bool | None = field(default=None, init=False)
    _restarts: dict[tuple[str, str, str], int] = field(default_factory=dict, init=False)
    _hosts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not self.delimiter or self.delimiter in ("_", ".", ",", ":", "-", " "):
            raise SourceRefused("this delimiter occurs in values", fix="list again with another --delimiter")
        if self.zone is not None:
            try:
                self._tz = ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise SourceRefused(
                    "unknown time zone", fix="give an IANA name, as Europe/Amsterdam"
                ) from None
        if self.columns is not None:
            self._check(self.columns)

    def header(self, line: Line) -> None:
        """Take the columns from the first line.

        Raises:
            SourceUnreadable: the line names no columns of sacct, or misses some that are needed.
        """
        names = text_of(line).split(self.delimiter)
        self._closed = names[-1] == ""  # --parsable ends each line with one delimiter more
        columns = names[:-1] if self._closed else names
        self._check(columns)
        self.columns = columns

    def _check(self, columns: Sequence[str]) -> None:
        missing = [c for c in _REQUIRED if c not in columns]
        if "JobIDRaw" not in columns and "JobID" not in columns:
            missing.insert(0, "JobIDRaw")
        if "Cluster" not in columns and self.cluster is None:
            missing.insert(0, "Cluster")
        if missing or len(set(columns)) != len(columns):
            raise SourceUnreadable(
                f"the listing has no column {', '.join(missing) or '(twice the same)'}",
                fix="ask sacct for it with -o, keep its header line, and give the same --delimiter here",
            )

    def parse(self, line: Line) -> Row:
        """Read one line as a run of a job, or as a step of one.

        Raises:
            Unparsed: to quarantine, with this reason.
            SourceRefused: times carry no zone and none was given, or the listing spells out too many nodes.
        """
        value = self._values(text_of(line))
        shown = value.get("JobID") or value["JobIDRaw"]
        m = _JOB_ID.fullmatch(shown)
        raw = _JOB_ID.fullmatch(value.get("JobIDRaw") or shown)
        state = _STATE.fullmatch(value["State"])
        if m is None or raw is None or state is None:
            raise Unparsed("job id or state is out of form")
        submit, start, end = (self._time(value[c]) for c in ("Submit", "Start", "End"))
        if submit is None:
            raise Unparsed("no submit time")
        if start is not None and end is not None and end < start:
            raise Unparsed("the end is before the start")
        nodes = self._nodes(value["NodeList"])
        cluster = value.get("Cluster") or self.cluster or ""
        if not _CLUSTER.fullmatch(cluster):
            raise Unparsed("cluster is out of form")
        job_raw = (value.get("JobIDRaw") or shown).split(".")[0]
        step = m["step"] or raw["step"]
        return present(
            {
                "event_id": event_id(INFO.name, line.raw),
                "offset": str(line.offset),
                "cluster": cluster,
                "job_raw": job_raw,
                "job_id": shown.split(".")[0],
                "submit_ns": str(submit),
                "restart": self._restart(value.get("Restarts"), cluster, job_raw, str(submit), step),
                "start_ns": None if start is None else str(start),
                "end_ns": None if end is None else str(end),
                "state": state[1],
                "nodes": ",".join(nodes) or None,
                "account": value.get("Account") or None,
                "user": value.get("User") or None,
                "partition": value.get("Partition") or None,
                "array_job": None if m["task"] is None else m["base"],
                "array_task": None if m["task"] is None else int(m["task"]),
                "step": step,
            }
        )

    def _values(self, text: str) -> dict[str, str]:
        if self.columns is None:
            raise SourceRefused("no columns are known", fix="keep sacct's header line, or give --columns")
        parts = text.split(self.delimiter)
        if self._closed is None:  # columns were given: the first line tells
            self._closed = len(parts) == len(self.columns) + 1 and parts[-1] == ""
        if self._closed and parts.pop() != "":
            raise Unparsed("number of fields differs from the columns")
        free = [c for c in self.columns if c in _FREE_TEXT]
        if len(parts) < len(self.columns) and free:
            raise SourceRefused(
                f"a line is cut, and users write what they like into column {free[0]}: a line break there "
                "would forge the lines that follow",
                fix=f"list again without {', '.join(free)}",
            )
        if len(parts) != len(self.columns):
            raise Unparsed("number of fields differs from the columns")
        return {c: p.strip() for c, p in zip(self.columns, parts, strict=True)}

    def _restart(self, column: str | None, cluster: str, raw: str, submit: str, step: str | None) -> int:
        """Restart number: from the column, else the order of the runs in the listing."""
        if column:
            if not column.isascii() or not column.isdigit() or len(column) > 9:
                raise Unparsed("restart count is out of form")
            return int(column)
        key = (cluster, raw, submit)
        if step is not None:
            return self._restarts.get(key, 0)
        self._restarts[key] = self._restarts.get(key, -1) + 1
        return self._restarts[key]

    def _nodes(self, text: str) -> list[str]:
        """Names of a node list; those of a whole listing are bounded, since a join lays all of them out."""
        nodes = expand(text)
        self._hosts += len(nodes)
        if self._hosts > LIMITS.listing_hosts:
            raise SourceRefused(
                f"the lines of the listing name more than {LIMITS.listing_hosts} nodes together",
                fix="list a shorter time, and import one listing after the other",
            )
        return nodes

    def _time(self, text: str) -> int | None:
        if text in _NO_TIME:
            return None
        if text.isascii() and text.isdigit() and len(text) <= 11:
            at = int(text) * 1_000_000_000
        else:
            at = self._written(text)
        if not 0 < at < _I63:
            raise Unparsed("time is out of range")
        return at

    def _written(self, text: str) -> int:
        m = _ISO.fullmatch(text)
        if m is None:
            raise Unparsed("time is out of form")
        try:
            return _ns(datetime.fromisoformat(text)) if m[2] else self._local(datetime.fromisoformat(m[1]))
        except (ValueError, OverflowError):
            raise Unparsed("time is out of range") from None

    def _local(self, naive: datetime) -> int:
        if self._tz is None:
            raise SourceRefused(
                "the times of this listing carry no zone",
                fix="list again with SLURM_TIME_FORMAT=%s, or give the zone of the cluster with --zone",
            )
        first, second = (_ns(naive.replace(tzinfo=self._tz, fold=f)) for f in (0, 1))
        if first != second:
            raise Unparsed("local time happens twice or never (clock change)")
        return first


def _ns(at: datetime) -> int:
    return (at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * 1_000_000_000
