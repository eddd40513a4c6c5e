"""Structural search: every PodSpec and every image at any depth of an object whose schema is not known.

What counts (notes of 368 public AI objects and the CRDs of their operators):
* a map with a list of containers: a PodSpec, wherever it stands (JobSet, Ray, Volcano, LeaderWorkerSet,
  AppWrapper, TrainingRuntime, EphemeralContainers of old clusters, ...);
* a map with a string `image`: a container that a field names (Slinky `slurmd`, TrainJob `trainer`, Spark);
* `repository` + `image` + `version`, or `image: {repository, tag}`: one reference in parts (GPU operator);
* `runtimeRef`, `clusterSelector`: PodSpecs that stand in another object (lookup, or `unresolved`);
* a string that holds a manifest: flagged as embedded.

Iterative, so depth cannot exhaust the stack. `status` and Secrets are not searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.containers import add_image, container_facts
from policy_engine.facts.embedded import IGNORED_ANNOTATIONS, embedded_images
from policy_engine.facts.exposure import store
from policy_engine.facts.images import image_fields
from policy_engine.facts.notes import Notes
from policy_engine.facts.places import Names, Place, place_text
from policy_engine.facts.pod import pod_facts
from policy_engine.limits import LIMITS

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_POD_KEYS: Final = frozenset({*_CONTAINERS, "volumes", "affinity", "tolerations", "nodeSelector"})
_META_KEYS: Final = frozenset({"annotations", "labels", "managedFields", "ownerReferences"})
_EMPTY: Final[Mapping[str, Any]] = {}
# Per visited node: (node, place, depth, annotations that reach the pods below, path of those annotations).
_Item = tuple[Any, Place, int, Mapping[str, Any], str]


class Found:
    """What a search collects besides the notes."""

    __slots__ = ("bucket", "embedded", "names", "pods", "stores")

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.stores: list[dict[str, Any]] = []
        self.embedded: list[dict[str, Any]] = []
        self.names = Names(_EMPTY)  # of the object that is searched now
        self.bucket = False  # the object is a Bucket: its spec describes a store


def search(obj: Mapping[str, Any], found: Found, notes: Notes, *, prefix: str = "") -> None:
    """Adds everything that the object would run.

    Args:
        obj: the object.
        found: collects pods, stores and embedded manifests.
        notes: collects images and what is unreadable or unresolved.
        prefix: put before every path (for an object that another one refers to).
    """
    found.names = Names(obj)
    root, at = _annotations(obj), f"{prefix}metadata.annotations"
    stack: list[_Item] = [
        (value, (prefix, key), 1, root, at)
        for key, value in reversed(list(obj.items()))
        if key not in {"status", "apiVersion", "kind"}
    ]
    if _is_pod_spec(obj):
        found.pods.append(pod_facts(obj, prefix.rstrip(".->"), root, at, notes))
    visited = 0
    while stack:
        item = stack.pop()
        visited += 1
        if visited > LIMITS.search_nodes:
            notes.bad(place_text(item[1]), "the object has too many parts to be searched")
            return
        if len(found.pods) > LIMITS.pods:
            notes.bad(place_text(item[1]), f"the object has more than {LIMITS.pods} pods")
            return
        node = item[0]
        if type(node) is str:
            _string(node, item[1], found, notes)
        elif type(node) is dict or type(node) is list:
            if item[2] > LIMITS.search_depth:
                notes.bad(place_text(item[1]), "the object is nested too deeply to be searched")
                continue
            stack += _map(item, found, notes) if type(node) is dict else _list(item)


def _list(item: _Item) -> list[_Item]:
    node, place, depth, annotations, at = item
    return [
        (value, (place, index), depth + 1, annotations, at)
        for index, value in reversed(list(enumerate(node)))
    ]


def _map(item: _Item, found: Found, notes: Notes) -> list[_Item]:
    node, place, depth, annotations, at = item
    skip: frozenset[str] = frozenset()
    strings: list[_Item] = []
    if place[1] == "metadata":
        skip = _META_KEYS
        values = node.get("annotations")
        if type(values) is dict:
            strings = _annotation_items(values, (place, "annotations"), depth)
    if _is_pod_spec(node):
        name = found.names.of(place)
        found.pods.append(pod_facts(node, place_text(place), annotations, at, notes, name=name))
        skip |= _POD_KEYS
    elif _may_name_images(node):
        _named_images(item, found, notes)
    if "runtimeRef" in node or "clusterSelector" in node:
        _references(node, place_text(place), found, notes)
    certain = found.bucket and place == ("", "spec")
    if certain or "endpoint" in node:
        bucket = store(node, place_text(place), found.names.of(place), certain=certain)
        if bucket is not None:
            found.stores.append(bucket)
    if "spec" in node:
        annotations, at = _annotations(node), f"{place_text(place)}.metadata.annotations"
    return strings + [
        (value, (place, key), depth + 1, annotations, at)
        for key, value in reversed(list(node.items()))
        if key not in skip
    ]


def _may_name_images(node: Mapping[str, Any]) -> bool:
    return "image" in node or any(key.endswith("Image") for key in node)


def _annotations(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    values = metadata.get("annotations") if type(metadata) is dict else None
    return values if type(values) is dict else _EMPTY


def _annotation_items(values: Mapping[str, Any], place: Place, depth: int) -> list[_Item]:
    return [
        (value, (place, key), depth + 1, _EMPTY, "")
        for key, value in reversed(list(values.items()))
        if type(value) is str and key not in IGNORED_ANNOTATIONS
    ]


def _is_pod_spec(node: Mapping[str, Any]) -> bool:
    for key in _CONTAINERS:
        value = node.get(key)
        if type(value) is list and any(type(v) is dict and ("image" in v or "name" in v) for v in value):
            return True
    return False


def _named_images(item: _Item, found: Found, notes: Notes) -> None:
    """A map that names an image by a field becomes a pod of its own: it runs somewhere in the cluster."""
    node, place, _, annotations, at = item
    path = place_text(place)
    name = path.rpartition(".")[2].partition("[")[0]
    own = node.get("name")
    pod: dict[str, Any] | None = None
    for key, value in node.items():
        container, ref = "", None
        if key == "image":
            ref = _composed(node, value)
            container = own if type(own) is str else "" if name == "spec" else name
        elif key.endswith("Image") and type(value) is str and _looks_like_image(value):
            ref, container = value, key.removesuffix("Image")
        if ref is None or _is_url(ref):
            continue
        if pod is None:
            pod = pod_facts(_EMPTY, path, annotations, at, notes, name=found.names.of(place))
            found.pods.append(pod)
        add_image(ref, pod, notes, name=container, role="field", path=f"{path}.{key}")
    if pod is not None:
        rest = {
            "name": pod["images"][0]["container"],
            "env": node.get("env"),
            "resources": node.get("resources"),
        }
        asked = container_facts(rest, path, "field", pod, notes)
        pod["accelerators"] = asked[2] if asked else {}


def _composed(node: Mapping[str, Any], image: Any) -> str | None:
    """A reference that stands in one string or in parts; None when there is none."""
    if type(image) is dict:
        repository, rest, tag = image.get("repository"), "", image.get("digest") or image.get("tag")
        if type(image.get("registry")) is str and type(repository) is str:
            repository = f"{image['registry']}/{repository}"
    else:
        repository, tag = node.get("repository"), node.get("version") or node.get("tag")
        rest = image
    if type(rest) is not str or (type(image) is not dict and not rest):
        return None
    if type(repository) is not str or not repository:
        return rest or None
    ref = f"{repository.rstrip('/')}/{rest}" if rest else repository
    if type(tag) is not str or not tag:
        return ref
    return f"{ref}@{tag}" if tag.startswith(("sha256:", "sha512:")) else f"{ref}:{tag}"


def _is_url(value: str) -> bool:
    """Pictures of catalogue entries stand in fields named `image` too; no runtime takes a URL."""
    return value.startswith(("http://", "https://", "data:"))


def _looks_like_image(value: str) -> bool:
    return ("/" in value or ":" in value) and not _is_url(value) and "invalid" not in image_fields(value)


def _references(node: Mapping[str, Any], path: str, found: Found, notes: Notes) -> None:
    """PodSpecs that another object holds."""
    runtime = node.get("runtimeRef")
    if type(runtime) is dict and type(runtime.get("name")) is str:
        kind = runtime.get("kind")
        kind = kind if type(kind) is str else "ClusterTrainingRuntime"
        at = f"{path}.runtimeRef"
        other = notes.lookup.training_runtime(kind, notes.namespace, runtime["name"])
        if other is None:
            notes.missing(kind, runtime["name"], at)
        elif "->" not in path:  # a runtime that refers to a runtime is not followed
            outer = found.names
            search(other, found, notes, prefix=f"{at}->")
            found.names = outer
    selector = node.get("clusterSelector")
    if type(selector) is dict and selector:
        name = selector.get("ray.io/cluster")
        notes.missing("RayCluster", name if type(name) is str else "", f"{path}.clusterSelector")


def _string(value: str, place: Place, found: Found, notes: Notes) -> None:
    images = embedded_images(value) if len(value) > 20 else None
    if images is None:
        return
    path = place_text(place)
    found.embedded.append({"path": path, "images": images})
    if not path.startswith(("data.", "binaryData.", "metadata.")):  # a ConfigMap runs nothing
        notes.images.update(images)
