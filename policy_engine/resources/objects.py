"""From YAML documents to typed objects: the envelope, the spec, and messages that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from policy_engine.errors import Problem
from policy_engine.resources.model import API_VERSION, KINDS, Endpoint, Identity, Resource
from policy_engine.resources.yaml_tree import Document, Path, field_path

_ENVELOPE: Final = ("apiVersion", "kind", "metadata", "spec")
_METADATA: Final = ("name", "labels", "annotations")
_TYPES: Final = {
    "string_type": "a text is due here",
    "int_type": "a whole number is due here",
    "bool_type": "true or false is due here",
    "tuple_type": "a list is due here",
    "dict_type": "a map is due here",
    "model_type": "a map is due here",
    "model_attributes_type": "a map is due here",
    "missing": "this field is required",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where one object was written.

    Attributes:
        file: name of the file.
        doc: its document.
        at: path of the object in the document; `()`, or `("items", i)` in a List.
        kind, name: as written, for objects that could not be read too.
    """

    file: str
    doc: Document
    at: Path
    kind: str
    name: str

    def problem(self, path: Path, message: str, fix: str = "") -> Problem:
        """A problem at a path of the object (`("spec", "regions", 0)`)."""
        full = (*self.at, *path)
        return Problem(self.file, self.doc.line(full), field_path(full), message, fix)

    def where(self) -> str:
        """`file:line` of the object."""
        return f"{self.file}:{self.doc.line(self.at)}"


@dataclass(frozen=True, slots=True)
class Located:
    """A valid object and where it was written."""

    resource: Resource
    source: Source


def nearest(value: str, names: Iterable[str]) -> str:
    """`did you mean "x"?` for the nearest of some names, or "" when none is near."""
    known = sorted(set(names))
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
    if not close:
        folded = {n.lower(): n for n in known}
        close = [folded[m] for m in difflib.get_close_matches(value.lower(), list(folded), n=1, cutoff=0.6)]
    return f'did you mean "{close[0]}"?' if close else ""


def one_of(value: str, names: Iterable[str]) -> str:
    """The nearest name, or all of them when there are few."""
    known = sorted(set(names))
    hint = nearest(value, known)
    if hint or not known:
        return hint
    return "known: " + ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")


def read_objects(file: str, doc: Document) -> Iterator[tuple[Source, Located | None, list[Problem]]]:
    """Every object of a document: where it is, the object if it is valid, and what is wrong with it."""
    data = doc.data
    if isinstance(data, dict) and data.get("kind") == "List" and data.get("apiVersion") == "v1":
        yield from _list(file, doc, data)
    else:
        yield _object(Source(file, doc, (), *_identity(data)), data)


def _list(
    file: str, doc: Document, data: Mapping[str, Any]
) -> Iterator[tuple[Source, Located | None, list[Problem]]]:
    outer = Source(file, doc, (), "List", "")
    problems = [
        outer.problem(
            (key,), f'unknown field "{key}" of a List', nearest(key, ["apiVersion", "kind", "items"])
        )
        for key in data
        if key not in {"apiVersion", "kind", "metadata", "items"}
    ]
    items = data.get("items")
    if not isinstance(items, list) or not items:
        problems.append(outer.problem(("items",), "a List needs items", "write at least one object"))
        items = []
    if problems:
        yield outer, None, problems
    for index, item in enumerate(items):
        yield _object(Source(file, doc, ("items", index), *_identity(item)), item)


def _identity(data: Any) -> tuple[str, str]:
    """Kind and name as far as they can be read."""
    if not isinstance(data, dict):
        return "", ""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = data.get("kind")
    return (kind if isinstance(kind, str) else "", name if isinstance(name, str) else "")


def _object(source: Source, data: Any) -> tuple[Source, Located | None, list[Problem]]:
    if not isinstance(data, dict):
        message = f"an object is due here: a map with {', '.join(_ENVELOPE)}"
        return source, None, [source.problem((), message)]
    problems = _envelope(source, data)
    spec, metadata = data.get("spec"), data.get("metadata")
    kind = KINDS.get(source.kind)
    if isinstance(spec, dict):
        if "name" in spec:
            problems.append(source.problem(("spec", "name"), 'unknown field "name"', "it stands in metadata"))
        if kind is None:
            problems += _of_no_kind(source, spec)
    else:
        spec, kind = {}, None
    values = {key: value for key, value in spec.items() if key != "name"} if kind is not None else {}
    if isinstance(metadata, dict) and metadata.get("name") is not None:
        values["name"] = metadata["name"]
    model = kind or Resource  # what is common to all kinds can be judged without one
    try:
        resource = model.model_validate(values)
    except ValidationError as error:
        said = (e for e in error.errors() if isinstance(metadata, dict) or e["loc"] != ("name",))
        return source, None, [*problems, *(_explain(source, model, e) for e in said)]
    return source, None if problems else Located(resource, source), problems


def _of_no_kind(source: Source, spec: Mapping[str, Any]) -> list[Problem]:
    """Fields that are wrong whatever the kind is meant to be."""
    known = {field for kind in KINDS.values() for field in _fields(kind, ())}
    return [
        source.problem(("spec", key), f'no kind has a field "{key}"', nearest(key, known))
        for key in spec
        if key not in known and key != "name"
    ]


def _envelope(source: Source, data: Mapping[str, Any]) -> list[Problem]:
    problems = _unknown(source, (), data, _ENVELOPE)
    version, kind = data.get("apiVersion"), data.get("kind")
    if version != API_VERSION:
        problems.append(source.problem(("apiVersion",), f"apiVersion must be {API_VERSION}"))
    if not isinstance(kind, str) or kind not in KINDS:
        said = f'unknown kind "{kind}"' if isinstance(kind, str) else "a kind is due here"
        problems.append(source.problem(("kind",), said, one_of(str(kind or ""), KINDS)))
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        problems.append(source.problem(("metadata",), "metadata with a name is due here"))
    else:
        problems += _unknown(source, ("metadata",), metadata, _METADATA)
    if not isinstance(data.get("spec"), dict):
        problems.append(source.problem(("spec",), "a spec is due here"))
    return problems


def _unknown(source: Source, path: Path, data: Mapping[str, Any], known: Iterable[str]) -> list[Problem]:
    return [
        source.problem((*path, key), f'unknown field "{key}"', one_of(key, known))
        for key in data
        if key not in set(known)
    ]


def _explain(source: Source, kind: type[BaseModel], error: ErrorDetails) -> Problem:
    """One pydantic error in our words, at the path as written."""
    loc: Path = tuple(error["loc"])
    path: Path = ("metadata", "name") if loc == ("name",) else ("spec", *loc)
    what, given = error["type"], error["input"]
    if what == "extra_forbidden":
        field = str(loc[-1])
        return source.problem(path, f'unknown field "{field}"', one_of(field, _fields(kind, loc[:-1])))
    if path[-1] == "[key]":
        return source.problem(path[:-1], "this key is not allowed here", _pattern_hint(error))
    if what == "literal_error":
        expected = [e.strip("'") for e in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        allowed = f"allowed: {', '.join(expected)}"
        hint = nearest(given, expected) if isinstance(given, str) else ""
        return source.problem(path, f"{_shown(given)} is not allowed here", f"{allowed}; {hint}".rstrip("; "))
    if what in _TYPES:
        quote = f'put it in quotes: "{given}"' if what == "string_type" and type(given) is int else ""
        return source.problem(path, _TYPES[what], quote)
    if what == "value_error":
        return source.problem(path, f"{_shown(given)} {error['ctx']['error']}".replace("  ", " "))
    if what == "string_pattern_mismatch":
        return source.problem(path, f"{_shown(given)} is not well-formed", _pattern_hint(error))
    if what in {"too_short", "too_long"}:
        return source.problem(path, _count(error))
    return source.problem(path, f"{_shown(given)}: {error['msg'].lower()}")


def _fields(model: type[BaseModel], loc: Path) -> list[str]:
    """YAML names of the fields of the (nested) model at a path."""
    nested: Mapping[Any, type[BaseModel]] = {"endpoints": Endpoint, "identity": Identity}
    if loc:
        model = nested.get(loc[0], model)
    return [f.alias or name for name, f in model.model_fields.items() if name != "name"]


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value[:60]}"'
    if value is None:
        return "null"
    return str(value)[:60] if isinstance(value, (int, bool)) else "this value"


def _pattern_hint(error: ErrorDetails) -> str:
    pattern = error.get("ctx", {}).get("pattern", "")
    if pattern == "^0x[0-9a-f]{4}$":
        return 'an ethertype in quotes, such as "0x8100"'
    if "A-Z" in pattern:
        return "a label value: letters, digits, dash, underscore, dot; at most 63"
    return "lower-case letters, digits and dashes; begins and ends with a letter or digit; at most 63"


def _count(error: ErrorDetails) -> str:
    ctx = error["ctx"]
    bound = ctx.get("min_length", ctx.get("max_length"))
    side = "at least" if "min_length" in ctx else "at most"
    return (
        f"{side} {bound} {'entries are' if bound != 1 else 'entry is'} due here, not {ctx['actual_length']}"
    )
