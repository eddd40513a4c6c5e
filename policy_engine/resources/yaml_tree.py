"""YAML to plain data, with the line of every value, and refusal of everything that YAML would guess.

Built on PyYAML's parser events, with its own composer and its own reading of scalars. Refused, each with
what to write instead: duplicate keys, anchors, aliases, merge keys, tags, directives, several documents,
tabs, deep nesting, and plain words that YAML 1.1 and 1.2 or their readers disagree about (`no`, `on`,
`0123`, `1e3`, `12:30`, `2026-01-01`, `1_000`, `0x8100`, `1.10`). What is left means the same everywhere:
true, false, null, whole decimal numbers, strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml

from policy_engine.errors import Problem
from policy_engine.limits import LIMITS

Path: TypeAlias = tuple[str | int, ...]
_WORDS: Final = frozenset({"yes", "no", "on", "off", "y", "n"})
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INT: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
# Anything that some reader of YAML takes for a number or a time although `_INT` does not.
_TRAPS: Final = (
    (re.compile(r"[-+]?0[0-9_]+", re.ASCII), "looks like an octal number"),
    (re.compile(r"[-+]?0[xob][0-9a-fA-F_]+", re.ASCII), "looks like a hexadecimal, octal or binary number"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", re.ASCII), "looks like a base-60 number"),
    (re.compile(r"[-+]?[0-9]*_[0-9_]*", re.ASCII), "looks like a number with separators"),
    (re.compile(r"\+[0-9]+|-0", re.ASCII), "looks like a number with a sign"),
    (re.compile(r"[-+]?([0-9][0-9_]*)?\.?[0-9_]+([eE][-+]?[0-9]+)?", re.ASCII), "looks like a fraction"),
    (re.compile(r"[-+]?[0-9][0-9_]*\.([eE][-+]?[0-9]+)?", re.ASCII), "looks like a fraction"),
    (re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)", re.ASCII), "looks like infinity or not-a-number"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?", re.ASCII), "looks like a date"),
)
_SHORT: Final = 64  # characters; the patterns above are tried on short values only, so they cost nothing
_NUMERIC: Final = re.compile(r"[-+.:_0-9eE]+", re.ASCII)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Document:
    """One document: plain data, and for each path the 1-based line where its value (or key) stands."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of a path, or of the nearest part of it that is written down."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def field_path(path: Path) -> str:
    """`spec.endpoints[1].sci` of a path."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _line(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line + 1


class _Stop(Exception):  # noqa: N818 - never leaves this module
    """The rest of the file cannot be read."""


def read_document(name: str, data: bytes) -> tuple[Document | None, list[Problem]]:
    """The one document of a file, and everything that is wrong with its YAML.

    Args:
        name: the file, for messages.
        data: its bytes.

    Returns:
        The document (None when there is none to speak of) and the problems found.
    """
    reader = _Reader(name)
    try:
        text = reader.text(data)
        return reader.document(text), reader.problems
    except _Stop:
        return None, reader.problems
    except yaml.YAMLError as error:
        reader.syntax(error)
        return None, reader.problems


class _Reader:
    """Composes one file; collects problems and goes on where that makes sense."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.nodes = 0
        self.doc = Document()

    def problem(self, line: int, path: Path, message: str, fix: str) -> None:
        self.problems.append(Problem(self.name, line, field_path(path), message, fix))

    def text(self, data: bytes) -> str:
        """The file as text: UTF-8 without byte order mark, tabs or control characters."""
        if len(data) > LIMITS.resource_file_bytes:
            limit = LIMITS.resource_file_bytes
            self.problem(0, (), f"the file is larger than {limit} bytes", "split it: one object per file")
            raise _Stop
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.problem(line, (), "the file is not UTF-8", "save it as UTF-8")
            raise _Stop from None
        if text.startswith("\ufeff"):
            self.problem(1, (), "the file begins with a byte order mark", "save it as UTF-8 without BOM")
            raise _Stop
        lines = [n for n, line in enumerate(text.split("\n"), 1) if "\t" in line]
        for line in lines[:20]:
            self.problem(line, (), "there is a tab", "use spaces; inside a quoted string write \\t")
        if lines:
            raise _Stop
        return text

    def syntax(self, error: yaml.YAMLError) -> None:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        self.problem(mark.line + 1 if mark else 0, (), f"this is not YAML: {what}", "")

    def document(self, text: str) -> Document | None:
        """The only document of the stream."""
        events = yaml.parse(text, Loader=_LOADER)
        found = False
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            line = _line(event)
            if found:
                self.problem(
                    line,
                    (),
                    "a second document begins here; a file holds one",
                    "put each object in a file of its own, or use one v1 List with items",
                )
                raise _Stop
            found = True
            if event.version or event.tags:
                self.problem(line, (), "YAML directives are not read", "remove the lines that begin with %")
            self.doc.data = self.node(next(events), (), events)
        if not found or self.doc.data is None:
            self.problem(1, (), "the file holds no object", "write one object, or delete the file")
            return None
        return self.doc

    def node(self, event: yaml.Event, path: Path, events: Iterator[yaml.Event]) -> Any:
        """The value that begins with this event."""
        line = _line(event)
        self.nodes += 1
        if self.nodes > LIMITS.yaml_nodes:
            self.problem(line, (), f"the document has more than {LIMITS.yaml_nodes} values", "split it")
            raise _Stop
        if len(path) > LIMITS.yaml_depth:
            self.problem(line, path[:4], f"nested more than {LIMITS.yaml_depth} levels deep", "")
            raise _Stop
        self.doc.lines.setdefault(path, line)
        if not isinstance(event, yaml.NodeEvent):  # the parser gives only nodes here
            raise _Stop
        if isinstance(event, yaml.AliasEvent):
            self.problem(line, path, f"the alias *{event.anchor} is not read", "write the value out")
            return None
        if event.anchor is not None:
            self.problem(
                line, path, f"the anchor &{event.anchor} is not read", "remove it and write values out"
            )
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            self.problem(line, path, "tags are not read", "remove what begins with !; quote strings")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path, events)
        return self.mapping(path, events)

    def sequence(self, path: Path, events: Iterator[yaml.Event]) -> list[Any]:
        out: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            out.append(self.node(event, (*path, len(out)), events))
        return out

    def mapping(self, path: Path, events: Iterator[yaml.Event]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self.key(event, path, events)
            below = path if key is None else (*path, key)
            if key is not None and key in out:
                first = self.doc.lines[below]
                self.problem(
                    _line(event),
                    below,
                    f"the key stands here twice, first on line {first}",
                    "keep one",
                )
                key = None
            elif key is not None:
                self.doc.lines[below] = _line(event)
            value = self.node(next(events), below, events)
            if key is not None:
                out[key] = value
        return out

    def key(self, event: yaml.Event, path: Path, events: Iterator[yaml.Event]) -> str | None:
        """A key that is a string; None (and a problem) for any other."""
        line = _line(event)
        if not isinstance(event, yaml.ScalarEvent):
            self.problem(line, path, "a key must be a plain name", "")
            self.node(event, (*path, "?"), events)
            return None
        if event.anchor is not None or (event.tag is not None and event.tag != "!"):
            self.problem(line, path, "anchors and tags on keys are not read", "remove them")
        value = event.value
        if not event.style and value == "<<":
            self.problem(line, path, "merge keys (<<) are not read", "write the values out")
            return None
        if not event.style and (value.lower() in _CONSTANTS or value.lower() in _WORDS or self.trap(value)):
            self.problem(
                line, path, f'the key "{value[:40]}" could be read in several ways', "put it in quotes"
            )
            return None
        return str(value)

    def scalar(self, event: yaml.ScalarEvent, path: Path, line: int) -> Any:
        """The value of a scalar; a plain one only where every reader agrees on it."""
        value = str(event.value)
        if event.style:  # quoted or a block; libyaml says "" for plain, the pure parser None
            return value
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if value.lower() in _WORDS or value.lower() in {"true", "false", "null"}:
            fix = f'write true or false, or "{value}" in quotes for the text (such as a country code)'
            self.problem(line, path, f"the plain word {value} could be a truth value or a text", fix)
            return value
        if _INT.fullmatch(value):
            if abs(int(value[:20])) >= 2**53 or len(value) > 16:
                self.problem(line, path, "the number is too large to be exact", "for an id, put it in quotes")
            return int(value[:20])
        why = self.trap(value)
        if why:
            self.problem(line, path, f"the plain value {value[:40]} {why}", "put it in quotes")
        return value

    @staticmethod
    def trap(value: str) -> str:
        """Why a plain scalar is ambiguous, or ""."""
        if value[:1] not in "+-.0123456789":
            return ""
        if len(value) > _SHORT:
            return "looks like a number" if _NUMERIC.fullmatch(value) else ""
        return next((why for pattern, why in _TRAPS if pattern.fullmatch(value)), "")
