"""What data a pod says it reads: annotations, CSI attributes and claims; and insecure endpoints it names.

`sluicegate.io/datasets: a, b` and `sluicegate.io/segments: c` stand on the pod template, on a claim, or in
a CSI volume's attributes. The word `none` is a declaration too: it reads no governed data.
Of variables only well-known names are read, and of their values only scheme and host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from policy_engine.facts.notes import Notes, words
from policy_engine.limits import LIMITS

DATASETS: Final = "sluicegate.io/datasets"
SEGMENTS: Final = "sluicegate.io/segments"
_NONE: Final = "none"
_CACHED_CHARS: Final = 512  # characters of a declaration that is kept
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)

# Variables whose value is an address, by convention of the program that reads them.
_ADDRESSES: Final = words(
    """
    AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 S3_ENDPOINT S3_ENDPOINT_URL S3_URL MINIO_ENDPOINT MINIO_URL
    MLFLOW_TRACKING_URI MLFLOW_S3_ENDPOINT_URL WANDB_BASE_URL HF_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT VAULT_ADDR BAO_ADDR REDIS_URL
    DATABASE_URL MONGODB_URI RABBITMQ_URL AMQP_URL ELASTICSEARCH_URL CLICKHOUSE_URL KAFKA_REST_URL
    TRITON_URL STORAGE_EMULATOR_HOST AZURE_STORAGE_ENDPOINT GCS_ENDPOINT FSSPEC_S3_ENDPOINT_URL
    LAKEFS_ENDPOINT LAKECTL_SERVER_ENDPOINT_URL ALLUXIO_MASTER_HOSTNAME JUICEFS_META_URL
    """
)
# Switches that turn encryption or its checks off, with the values that do so.
_TRUE: Final = frozenset({"1", "true", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"0", "false", "no", "off", "f", "n"})
_SWITCHES: Final = {
    "OTEL_EXPORTER_OTLP_INSECURE": _TRUE,
    "MLFLOW_TRACKING_INSECURE_TLS": _TRUE,
    "S3_INSECURE": _TRUE,
    "MINIO_INSECURE": _TRUE,
    "VAULT_SKIP_VERIFY": _TRUE,
    "BAO_SKIP_VERIFY": _TRUE,
    "GIT_SSL_NO_VERIFY": _TRUE,
    "S3_USE_HTTPS": _FALSE,
    "S3_VERIFY_SSL": _FALSE,
    "S3_USE_SSL": _FALSE,
    "MINIO_SECURE": _FALSE,
    "MINIO_USE_SSL": _FALSE,
    "AWS_S3_USE_SSL": _FALSE,
    "PYTHONHTTPSVERIFY": _FALSE,
    "NODE_TLS_REJECT_UNAUTHORIZED": _FALSE,
}
WELL_KNOWN: Final = _ADDRESSES | frozenset(_SWITCHES)
# Schemes that carry data in the clear.
_CLEAR: Final = frozenset({"http", "ftp", "ws", "redis", "amqp"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
# Backslashes are slashes to many clients, and one slash is enough for some: what they reach, not the letter.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):[/\\]+([^/\\?#]*)(.*)", re.DOTALL)
# The usual address, whose reading is beyond doubt: lower case, no password, nothing that clients take out.
_USUAL: Final = re.compile(r"(https?)://([a-z0-9_.-]{1,253})(?::[0-9]{1,5})?(?:[/?#][!-?A-~]*)?", re.ASCII)
_IGNORED: Final = {ord(c): None for c in "\t\r\n"}  # clients take them out of an address
_EDGES: Final = "".join(map(chr, range(0x21)))
_AUTHORITY: Final = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


class Names(NamedTuple):
    """A parsed declaration: names in order, whether it declares anything, and what is wrong with it."""

    names: tuple[str, ...]
    declared: bool
    why: str


def parse_names(value: str) -> Names:
    """Names of `"a, b"`; `"none"` declares that there are none; an empty value declares nothing."""
    return _cached(value) if len(value) <= _CACHED_CHARS else _parse(value)


def _parse(value: str) -> Names:
    names = tuple(dict.fromkeys(part for part in (p.strip() for p in value.split(",")) if part))
    if not names:
        return Names((), False, "")
    if _NONE in names:
        why = "names both data and none" if len(names) > 1 else ""
        return Names(tuple(n for n in names if n != _NONE), True, why)
    if len(names) > LIMITS.declared_names:
        return Names((), True, f"names more than {LIMITS.declared_names}")
    bad = [n for n in names if len(n) > LIMITS.declared_name_chars or _NAME.fullmatch(n) is None]
    if bad:
        good = tuple(n for n in names if n not in bad)
        return Names(
            good, True, "holds a malformed name (lower-case letters, digits, dashes, commas between)"
        )
    return Names(names, True, "")


_cached = lru_cache(maxsize=4096)(_parse)


def endpoint(container: str, variable: str, value: Any) -> dict[str, Any] | None:
    """What a well-known variable says about a connection; None when it says nothing.

    The value may hold a password: only scheme and host leave this function, and no host at all where
    the authority is not plainly a host.
    """
    if not isinstance(value, str):
        return None
    bad = _SWITCHES.get(variable)
    if bad is not None:
        if value.strip().lower() not in bad:
            return None
        return {"container": container, "var": variable, "scheme": "", "host": "", "insecure": True}
    scheme, host = scheme_and_host(value)
    unknown = not scheme and "://" in value and "$(" in value  # its scheme stands in another object
    if not scheme and not host and not unknown:
        return None
    return {
        "container": container,
        "var": variable,
        "scheme": scheme,
        "host": host,
        "insecure": unknown or (scheme in _CLEAR and host not in _LOOPBACK),
    }


def scheme_and_host(value: str) -> tuple[str, str]:
    """Scheme (lower case) and host of an address; "" for what is not plainly there."""
    usual = _USUAL.fullmatch(value)
    if usual is not None:
        return usual[1], usual[2]
    value = value.translate(_IGNORED).strip(_EDGES)
    match = _URL.match(value)
    if match is None:
        plain = _AUTHORITY.fullmatch(value)
        # A bare word may be anything, a token included: without a scheme only host:port is a host.
        return "", plain[1].lower() if plain and plain[0] != plain[1] else ""
    authority = match[2].rpartition("@")[2]
    host = _AUTHORITY.fullmatch(authority)
    # An "@" further on means that a password with a slash cut the authority short.
    return match[1].lower(), host[1].lower() if host and "@" not in match[3] else ""


def declare(
    annotations: Mapping[str, Any], at: str, pod: dict[str, Any], notes: Notes, *, via: str = ""
) -> bool:
    """Adds to `pod` the names that annotations or attributes declare; returns whether they declare.

    Args:
        annotations: or CSI attributes.
        at: their path.
        pod: is added to.
        notes: collects what is unreadable.
        via: what the object names, when another object holds the declaration. Its names may be foreign:
            a refusal then says this instead.
    """
    declared = False
    for key, out in ((DATASETS, "datasets"), (SEGMENTS, "segments")):
        value = annotations.get(key)
        if value is None:
            continue
        path = f"{at}[{key}]"
        if type(value) is not str:
            notes.bad(path, "a string is due here")
            continue
        names, said, why = parse_names(value)
        declared |= said
        if why:
            notes.bad(path, why)
        if len(pod[out]) + len(names) > LIMITS.declared_total:
            notes.bad(path, f"the pod declares more than {LIMITS.declared_total} names")
            continue
        entry = {"path": path, "via": via} if via else {"path": path}
        pod[out] += [{"name": name, **entry} for name in names]
    return declared
