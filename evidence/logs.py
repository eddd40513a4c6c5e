"""Structured logs of every component, with secrets taken out last, just before rendering.

Redaction is a net under the rule that secrets are not logged in the first place. It takes out values by the
name of their key (`token`, `sak`, `password`, ...), values that look like secrets anywhere in a text (OpenBao
tokens, `vault:vN:` ciphertexts, PEM private keys, `key=` and `Bearer` values), octets, and integers too wide
for a counter. It reaches nested structures, exception texts and what libraries log through `logging`.
"""

from __future__ import annotations

import json as json_module
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import orjson
import structlog

REDACTED = "[redacted]"
_DEPTH = 12  # levels of nesting that are shown
_WIDE = 2**64  # integers from here on are no counters or times

_SECRET_WORDS = frozenset(
    {"token", "tokens", "secret", "secrets", "password", "passwd", "passphrase", "authorization", "cookie"}
    | {"ciphertext", "plaintext", "sak", "saks", "cak", "caks", "salt", "salts", "unseal", "private", "ikm"}
    | {"key", "keys", "apikey", "credential", "credentials", "signature", "jwt", "bearer", "psk"}
)
# What a key, token or salt is *called* may be shown: key_id, key_version, keyName, salt_count, ...
_NAMING_WORDS = frozenset(
    {"id", "ids", "version", "versions", "name", "names", "count", "digest", "digests", "hash", "ns", "equal"}
    | {
        "fingerprint",
        "type",
        "kind",
        "state",
        "age",
        "bits",
        "length",
        "seq",
        "path",
        "mount",
        "index",
        "ttl",
    }
    | {"error", "accessor", "checks", "created", "destroyed"}
)
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_STRONG = r"token|secret(?:[_-]?id)?|password|passwd|passphrase|authorization|sak|cak|salt|ikm|unseal[_-]?key"
_IS = r"[\"']?\s*[=:]\s*[\"']?"
_VALUE = r"(?!\[redacted\]|(?:bearer|basic)\s)[^\s\"',;&)}\]]{8,}"
_PATTERNS = (
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL),
        REDACTED,
    ),
    (re.compile(r"\bhv[sbr]\.[\w-]{8,}"), REDACTED),
    (re.compile(r"\b[sbr]\.[A-Za-z0-9]{20,}(?:\.[A-Za-z0-9]+)?"), REDACTED),
    (re.compile(r"\bvault:v\d+:[\w+/=-]+"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}"), rf"\1{REDACTED}"),
    (re.compile(rf"(?i)((?:{_STRONG}){_IS}){_VALUE}"), rf"\1{REDACTED}"),
    (
        re.compile(r"(?i)((?:key|sig|signature)[\"']?\s*[=:]\s*[\"']?)(?:[0-9a-f]{32,}|[\w+/%-]{40,}=*)"),
        rf"\1{REDACTED}",
    ),
)


def configure(component: str, level: str = "info", json: bool = True) -> None:
    """Set up logging of this process: structlog and the standard library, one redacted stream on stderr.

    Args:
        component: Name that stands in each line.
        level: Lowest level shown.
        json: One JSON object a line; False for people.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _component(component),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            redact,  # here too, for what libraries log
            _render if json else _for_people(),
        ],
    )
    handler = _StandardError()
    handler.setFormatter(formatter)
    logging.raiseExceptions = False  # a failing handler would print the raw record
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    structlog.configure(
        # Redacted before it leaves structlog, so that no other handler sees more than ours does.
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            redact,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> Any:
    """Return a logger; usable before `configure`, which changes how it renders."""
    if not structlog.is_configured():
        # structlog's own default shows the local variables of a traceback, and hides no secret.
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                redact,
                _for_people(),
            ]
        )
    return structlog.stdlib.get_logger(name)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take secrets out of an event: the last processor before rendering."""
    return {str(key): redacted(value, str(key)) for key, value in event.items()}


def redacted(value: Any, name: str = "", depth: int = _DEPTH) -> Any:
    """Return a value that may be shown.

    Args:
        value: Anything.
        name: Key under which it stands.
        depth: Levels of nesting still shown.

    Returns:
        Plain JSON-shaped data without secrets.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _WIDE else REDACTED
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"[{len(value)} octets]"
    if _names_secret(name) or depth == 0:
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {redact_text(str(key)): redacted(item, str(key), depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [redacted(item, name, depth - 1) for item in value]
    return redact_text(f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value))


def redact_text(text: str) -> str:
    """Return a text with whatever looks like a secret taken out."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _names_secret(name: str) -> bool:
    """Tell whether a key names a secret itself (not its id, version, digest, ...)."""
    words = [word.lower() for word in _SPLIT.split(name) if word]
    if words[-2:] == ["secret", "id"]:
        return True
    return not _SECRET_WORDS.isdisjoint(words) and words[-1] not in _NAMING_WORDS


class _StandardError(logging.StreamHandler[Any]):
    """Writes to standard error as it is now, not as it was when logging was set up."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def _component(name: str) -> Any:
    def add(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("component", name)
        return event

    return add


def _render(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    try:
        return orjson.dumps(event).decode()
    except TypeError:  # a lone surrogate
        return json_module.dumps(event, default=str)


def _for_people() -> Any:
    return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
