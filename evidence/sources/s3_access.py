"""Amazon S3 server access log: space-delimited, 18 fields in the first years, 27 today.

Decides what a line says, or that it can't be told. A request URI, referer or user agent may hold raw
double quotes (they come from the client), so a line is read from both ends: a fixed prefix up to the key,
a fixed suffix after the last quote, and between them the only place where the numbers can stand. Two
possible places is no place: quarantine, never guess.

Format: docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html. Delivery is best effort: lines may
be missing, late by hours, out of order or repeated; `request_id` is not unique (one multi-delete gives
several lines), so a repeat is the same whole line and nothing less.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import islice
from urllib.parse import unquote

from evidence.sources.base import Info, Line, Row, Unparsed, event_id, present, text_of

INFO = Info(
    name="s3_access",
    version="1",
    source_class="best-effort",
    time_means="received",
    resolution_ns=1_000_000_000,
    known_delay="usually within hours, not guaranteed",
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # any locale
_PREFIX = re.compile(
    r"(?P<bucket_owner>\S+) (?P<bucket>\S+) \[(?P<time>[^\]]{20,40})\] (?P<remote_ip>\S+) "
    r"(?P<requester>\S+) (?P<request_id>\S+) (?P<operation>\S+) (?P<key>\S+) "
)
_TIME = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) \+0000")
# Status, error code, four counts: between the end of the URI and the start of the referer.
_CORE = re.compile(
    r'(?=(?:"|(?<= )-|^-) (\d{3}|-) ([A-Za-z][\w.]*|-)'
    r" (0|[1-9]\d{0,13}|-) (0|[1-9]\d{0,13}|-) (0|[1-9]\d{0,9}|-) (0|[1-9]\d{0,9}|-) [\"-])"
)
_CORE_NAMES = ("status", "error_code", "bytes_sent", "object_size", "total_time_ms", "turnaround_ms")
_SUFFIX: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("version_id", re.compile(r"[\w.+/=-]+")),
    ("host_id", re.compile(r"[\w+/=.-]+")),
    ("signature_version", re.compile(r"SigV2|SigV4A?|-")),
    ("cipher", re.compile(r"[A-Z][A-Z0-9_-]+|-")),
    ("auth_type", re.compile(r"AuthHeader|QueryString|-")),
    ("host_header", re.compile(r"[\w.:\[\]-]+")),
    ("tls_version", re.compile(r"(?i:TLSv?1(\.[0-3])?)|-")),
    ("access_point_arn", re.compile(r"arn:\S+|-")),
    ("acl_required", re.compile(r"Yes|-")),
    ("source_region", re.compile(r"[a-z]{2}(-[a-z]+)+-\d|-")),
)
#: Suffix lengths that were ever written: 18, 23, 24, 25, 26 and 27 fields in all.
_GENERATIONS = frozenset({1, 6, 7, 8, 9, 10})
_MAX_PLACES = 32  # places looked at for the six values: a line made of them is no honest one
_FIELDS = re.compile(r'["-](?s:.*)["-]')
_GAP = re.compile(r'(?<=["-]) (?=["-])')
_MAX_EXTRA = 4  # fields after the 27th that are kept by position, without a meaning
_SECRETS = frozenset(
    {"x-amz-signature", "x-amz-security-token", "x-amz-credential", "signature", "awsaccesskeyid", "sig"}
    | {"token", "access_token", "password", "secret"}
)
_PART = re.compile(r"[^&\s]+")
_PARAMETER = re.compile(r"(?:^|[?;])([^?;=]+)=")
_ENCODED_BEGIN = re.compile(r"[?&;]")
_NESTED = 3  # times that a part is decoded in search of an address inside the address
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_SESSION = re.compile(
    r"arn:aws[a-z-]*:sts::\d{12}:assumed-role/[^/\s]+/slurm\.([A-Za-z0-9_-]+)\.(\d+(?:_\d+)?)"
)
_QUERY_JOB = re.compile(r"[?&]x-sluicegate-job=([A-Za-z0-9_-]+)\.(\d+(?:_\d+)?)(?=[&\s]|$)")


def parse(line: Line) -> Row:
    """Read one line.

    Args:
        line: octets without the line end.

    Returns:
        A row; absent fields and `-` are left out, counts of 64 bits are decimal strings.

    Raises:
        Unparsed: the line goes to quarantine with this reason.
    """
    text = text_of(line)
    prefix = _PREFIX.match(text)
    if prefix is None:
        raise Unparsed("prefix up to the key is out of form")
    middle, suffix = _split_suffix(text[prefix.end() :])
    fields: dict[str, str | None] = {k: v for k, v in prefix.groupdict().items() if k != "time"}
    fields |= _middle(middle) | _suffix(suffix)
    row: dict[str, str | int | None] = {k: None if v == "-" else v for k, v in fields.items()}
    row["event_id"] = event_id(INFO.name, line.raw)
    row["offset"] = str(line.offset)
    row["time_ns"] = str(_time_ns(prefix["time"]))
    row["status"] = None if row["status"] is None else int(str(row["status"]))
    ip = row["remote_ip"]
    if ip is not None and not _ADDRESS.fullmatch(str(ip)):
        raise Unparsed("remote address is out of form")
    row |= _job_hint(fields)
    for name in ("request_uri", "referer", "user_agent"):
        row[name] = None if row[name] is None else _redacted(str(row[name]))
    return present(row)


def _redacted(text: str, nested: int = _NESTED) -> str:
    """The text without values of parameters that open something, however their names are written."""
    return _PART.sub(lambda m: _redacted_part(m[0], nested), text)


def _redacted_part(part: str, nested: int) -> str:
    """What stands between `&` or blanks. A value ends there and not at `;`: a secret may hold one."""
    for m in _PARAMETER.finditer(part):
        if _ENCODED_BEGIN.split(unquote(m[1]))[-1].strip().lower() in _SECRETS:
            part = part[: m.end()] + "REDACTED"
            break
    plain = unquote(part) if nested else part
    if plain != part and _redacted(plain, nested - 1) != plain:  # an address inside the address
        name, equals, _ = part.partition("=")
        return name + equals + "REDACTED" if equals else "REDACTED"
    return part


def _time_ns(text: str) -> int:
    m = _TIME.fullmatch(text)
    if m is None or m[2] not in _MONTHS:
        raise Unparsed("time is out of form")
    if not 2006 <= int(m[3]) < 2262:  # the year S3 began; the last whole one of signed nanoseconds
        raise Unparsed("time is out of range")
    try:
        at = datetime(
            int(m[3]), _MONTHS.index(m[2]) + 1, int(m[1]), int(m[4]), int(m[5]), int(m[6]), tzinfo=UTC
        )
    except ValueError:
        raise Unparsed("time is out of range") from None
    return int(at.timestamp()) * 1_000_000_000


def _split_suffix(rest: str) -> tuple[str, list[str]]:
    """Cut after the user agent: the last quote of the line, since no field after it is quoted."""
    end = rest.rfind('" ')
    if end < 0 or '"' in rest[end + 2 :]:
        # No quoted field at all: then URI, referer and user agent must all be a bare dash.
        m = re.fullmatch(r"(- \S+ \S+ \S+ \S+ \S+ \S+ - -) (.*)", rest)
        if m is None:
            raise Unparsed("too few fields")
        return m[1], m[2].split(" ")
    # A bare dash as user agent stands after the referer's quote.
    cut, tail = rest[: end + 1], rest[end + 2 :].split(" ")
    return cut, tail


def _middle(middle: str) -> dict[str, str | None]:
    """URI, six values, referer, user agent; exactly one reading or none."""
    places = list(islice(_CORE.finditer(middle), _MAX_PLACES + 1))
    if len(places) > _MAX_PLACES:
        raise Unparsed("ambiguous quotes: more than one reading")
    found = [r for r in (_reading(middle, m.start(), m) for m in places) if r is not None]
    if not found:
        raise Unparsed("too few fields")
    if len(found) > 1:
        raise Unparsed("ambiguous quotes: more than one reading")
    return found[0]


def _reading(middle: str, at: int, m: re.Match[str]) -> dict[str, str | None] | None:
    uri = _unquote(middle[: at + 1])
    after = middle[at + 2 + sum(len(g) + 1 for g in m.groups()) :]
    splits = _pairs(after)
    if uri is None or not splits:
        return None
    if len(splits) > 1:
        raise Unparsed("ambiguous quotes: more than one reading")
    referer, agent = splits[0]
    values: dict[str, str | None] = dict(zip(_CORE_NAMES, m.groups(), strict=True))
    return values | {"request_uri": uri, "referer": referer, "user_agent": agent}


def _unquote(text: str) -> str | None:
    if text == "-":
        return "-"
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else None


def _pairs(text: str) -> list[tuple[str, str]]:
    """Every way to read `text` as two fields, each quoted or a bare dash; at most two are told."""
    out: list[tuple[str, str]] = []
    if not _FIELDS.fullmatch(text):
        return out
    for m in _GAP.finditer(text):
        left, right = _unquote(text[: m.start()]), _unquote(text[m.end() :])
        if left is not None and right is not None:
            out.append((left, right))
            if len(out) > 1:
                break
    return out


def _suffix(values: list[str]) -> dict[str, str | None]:
    known, extra = values[: len(_SUFFIX)], values[len(_SUFFIX) :]
    if len(known) not in _GENERATIONS:
        raise Unparsed(f"no known generation has {17 + len(known)} fields")
    if len(extra) > _MAX_EXTRA or any(not e for e in extra):
        raise Unparsed("too many fields")
    for (name, form), value in zip(_SUFFIX, known, strict=False):
        if not form.fullmatch(value):
            raise Unparsed(f"{name} is out of form")
    out: dict[str, str | None] = {n: v for (n, _), v in zip(_SUFFIX, known, strict=False)}
    return out | ({"extra": " ".join(extra)} if extra else {})


def _job_hint(fields: dict[str, str | None]) -> dict[str, str | int | None]:
    """The job id that the request carried, if it did: role session name, else `x-sluicegate-job`."""
    by_role = _SESSION.fullmatch(fields.get("requester") or "")
    uri = (fields.get("request_uri") or "").split(" ")
    by_query = _QUERY_JOB.search(uri[1]) if len(uri) > 1 else None
    if by_role and by_query and by_role.groups() != by_query.groups():
        return {"job_by": "conflict"}
    hint = by_role or by_query
    if hint is None:
        return {}
    return {"job_by": "role-session" if by_role else "query", "job_cluster": hint[1], "job_id": hint[2]}
