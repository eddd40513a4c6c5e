"""Kubernetes objects from a file: YAML or JSON, one or many, lists and AdmissionReviews included.

This is input from people's repositories, so YAML is read as Kubernetes' own tools read it (anchors are
lawful), but never at any price: size, depth and the size after following aliases are bounded, duplicate
keys are refused, and dates stay text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from policy_engine.errors import ObjectUnreadable
from policy_engine.facts import request_for
from policy_engine.limits import LIMITS

_BASE: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH: Final = 200  # levels; the composer of the YAML library is recursive
_TEXTS: Final = ("name", "generateName", "namespace")  # of metadata: what an object is judged by
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file.

    Attributes:
        index: 0-based document in the file.
        request: what the API server would ask about it.
    """

    index: int
    request: Mapping[str, Any]


def read_manifests(data: bytes, *, namespace: str = "default") -> list[Manifest]:
    """Every object of a file, in order. Empty documents are none.

    Args:
        data: the file.
        namespace: where an object without a namespace goes.

    Raises:
        ObjectUnreadable: it cannot be read; the message says where.
    """
    if len(data) > LIMITS.object_file_bytes:
        raise ObjectUnreadable(f"larger than {LIMITS.object_file_bytes} bytes", fix="split the file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ObjectUnreadable(f"line {line}: not UTF-8", fix="save it as UTF-8") from None
    documents = _json(text) if text.lstrip()[:1] in {"{", "["} else _yaml(text)
    out: list[Manifest] = []
    for index, (document, node) in enumerate(documents):
        try:
            out += [Manifest(index, r) for r in _requests(document, index, namespace)]
        except _Misfit as error:
            raise error.said(index, node) from None
        if len(out) > LIMITS.object_documents:
            raise ObjectUnreadable(f"more than {LIMITS.object_documents} objects", fix="split the file")
    return out


class _Misfit(Exception):  # noqa: N818 - becomes an ObjectUnreadable once its line is known
    """A field of an object holds what the API server would refuse there."""

    def __init__(self, path: _Path, value: Any, due: str) -> None:
        super().__init__()
        self.path, self.value, self.due = path, value, due

    def said(self, index: int, node: yaml.Node | None) -> ObjectUnreadable:
        """With the line and the value as they are written in a YAML file."""
        at, where, written = node, f"document {index}", str(self.value)
        for step in self.path:
            at = _child(at, step)
        if at is not None and at.start_mark:
            where = f"line {at.start_mark.line + 1}"
        if isinstance(at, yaml.ScalarNode):
            written = at.value
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        quote = self.due == "a text" and isinstance(self.value, (int, float))
        fix = f'put it in quotes: "{written[:60]}"' if quote else ""
        return ObjectUnreadable(f"{where}: {field[1:]}: {self.due} is due here", fix=fix)


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step]  # type: ignore[no-any-return]
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None


def _check_texts(document: Mapping[str, Any], at: _Path) -> None:
    """Refuse what would be judged under another name or namespace than is written: YAML reads 0123 as 83."""
    metadata = document.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise _Misfit((*at, "metadata"), metadata, "a map")
    for name in _TEXTS:
        value = metadata.get(name)
        if value is not None and not isinstance(value, str):
            raise _Misfit((*at, "metadata", name), value, "a text")


def _requests(document: Any, index: int, namespace: str, at: _Path = ()) -> Iterator[Mapping[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise ObjectUnreadable(f"document {index}: not an object", fix="a Kubernetes object is a map")
    kind = document.get("kind")
    items = document.get("items")
    request = document.get("request")
    if kind == "AdmissionReview" and isinstance(request, dict):
        yield request
    elif isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            yield from _requests(_of_list(item, document), index, namespace, (*at, "items", number))
    elif not isinstance(kind, str) and {"object", "oldObject"} & document.keys():
        if "operation" not in document:
            raise ObjectUnreadable(f"document {index}: a request without an operation", fix="say CREATE")
        yield document  # a bare AdmissionRequest
    elif not isinstance(kind, str):
        raise ObjectUnreadable(
            f"document {index}: no kind", fix="a Kubernetes object has apiVersion and kind"
        )
    else:
        _check_texts(document, at)
        yield request_for(document, namespace=namespace)


def _of_list(item: Any, listed: Mapping[str, Any]) -> Any:
    """An item of a `PodList` as the API gives it: without the kind that the list says for all."""
    kind = str(listed["kind"]).removesuffix("List")
    if not isinstance(item, dict) or not kind or "kind" in item:
        return item
    return {"apiVersion": listed.get("apiVersion"), "kind": kind, **item}


def _json(text: str) -> list[tuple[Any, None]]:
    try:
        read = json.loads(
            text, object_pairs_hook=_no_twins, parse_constant=_no_constant, parse_float=_no_infinity
        )
    except json.JSONDecodeError as error:
        raise ObjectUnreadable(f"line {error.lineno}: not JSON: {error.msg.lower()}") from None
    except RecursionError:
        raise ObjectUnreadable("nested too deeply") from None
    except ValueError as error:
        raise ObjectUnreadable(f"not JSON: {str(error)[:100]}") from None
    return [(read, None)]


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise ObjectUnreadable(f'the key "{twin[:60]}" stands twice in one map', fix="keep one")
    return out


def _no_constant(name: str) -> Any:
    raise ObjectUnreadable(f"{name} is no JSON number")


def _no_infinity(written: str) -> float:
    value = float(written)
    if math.isinf(value):
        raise ObjectUnreadable(f"the number {written[:60]} is out of range")
    return value


def _yaml(text: str) -> list[tuple[Any, yaml.Node]]:
    try:
        _bounded(text)
        nodes = list(yaml.compose_all(text, Loader=_BASE))
        return [(_value(node, {}), node) for node in nodes]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
        raise ObjectUnreadable(f"{where}not YAML: {what}") from None


def _bounded(text: str) -> None:
    """Depth, before a recursive composer sees the text."""
    depth = 0
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEPTH:
            raise ObjectUnreadable("nested too deeply")


def _value(node: yaml.Node, sizes: dict[int, tuple[int, int]]) -> Any:
    """The plain value of a node, once its size with every alias followed is known to be small."""
    _size(node, sizes, set())
    return _plain(node)


def _size(node: yaml.Node, sizes: dict[int, tuple[int, int]], above: set[int]) -> tuple[int, int]:
    """Values and levels below a node, aliases followed.

    An alias refers to what was written before it, so what it names has been measured: this recurses no
    deeper than the text is nested.
    """
    key = id(node)
    if key in above:
        raise ObjectUnreadable("an alias refers to what it stands in")
    if key in sizes:
        return sizes[key]
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    elif isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    above.add(key)
    measured = [_size(child, sizes, above) for child in children]
    above.discard(key)
    size = 1 + sum(s for s, _ in measured)
    height = 1 + max((h for _, h in measured), default=0)
    if size > LIMITS.search_nodes or height > _DEPTH:
        raise ObjectUnreadable("too large once its aliases are followed", fix="write the values out")
    sizes[key] = (size, height)
    return sizes[key]


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child) for child in node.value]
    if isinstance(node, yaml.MappingNode):
        return _map(node)
    return _scalar(node)


def _map(node: yaml.MappingNode) -> dict[str, Any]:
    out: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            value = _plain(value_node)
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict):
                    merged = {**part, **merged}
            continue
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        line = key_node.start_mark.line + 1 if key_node.start_mark else 0
        if key is None:
            raise ObjectUnreadable(f"line {line}: a key is not a name")
        if key in out:
            raise ObjectUnreadable(
                f'line {line}: the key "{key[:60]}" stands twice in one map', fix="keep one"
            )
        out[key] = _plain(value_node)
    return {**merged, **out}


def _scalar(node: yaml.Node) -> Any:
    """As Kubernetes' tools read it: truth values, null, numbers; everything else is text."""
    value, tag = node.value, node.tag.rpartition(":")[2]
    if tag == "null":
        return None
    if tag == "bool":
        return value.lower() in {"yes", "true", "on", "y"}
    try:
        if tag == "int":
            digits = value.replace("_", "")
            octal = digits.lstrip("+-")[:1] == "0" and digits.lstrip("+-0").isdigit()
            return int(digits, 8 if octal else 0)
        if tag == "float":
            return float(value)
    except ValueError:
        pass
    return value
