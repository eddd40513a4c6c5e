"""From a review to facts: the subject, and which reader each kind needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from policy_engine.facts.declared import DATASETS, SEGMENTS, parse_names
from policy_engine.facts.embedded import IGNORED_ANNOTATIONS, embedded_images
from policy_engine.facts.exposure import exposure
from policy_engine.facts.lookup import Lookup
from policy_engine.facts.notes import Notes, items, mapping, text, words
from policy_engine.facts.pod import pod_facts
from policy_engine.facts.search import Found, search
from policy_engine.facts.volumes import claim_template

_TEMPLATE: Final = ("spec", "template")
# Path of the map that holds `metadata` and `spec` of the pods, for kinds whose schema is known.
TYPED: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    **{
        (group, kind): _TEMPLATE
        for group in ("apps", "extensions")
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
    },
}
CLUSTER_SCOPED: Final = words(
    """
    Namespace Node PersistentVolume StorageClass PriorityClass ClusterRole ClusterRoleBinding APIService
    CustomResourceDefinition ValidatingWebhookConfiguration MutatingWebhookConfiguration GatewayClass
    ClusterTrainingRuntime ClusterQueue ResourceFlavor RuntimeClass IngressClass CSIDriver CSINode
    Site Cluster Tenant NamespaceBinding LinkProfile Link Dataset Segment Flow ClusterPolicy
    """
)
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


def facts(request: Mapping[str, Any], lookup: Lookup, *, cluster: str) -> dict[str, Any]:
    """Facts of a review's object (see the package docstring for the shape). Never raises.

    Args:
        request: `request` of an AdmissionReview, or what `request_for` makes.
        lookup: answers about the cluster.
        cluster: name of the Cluster whose API server asks; from the URL and the credential.
    """
    return _facts(request, request.get("object"), lookup, cluster)


def old_facts(request: Mapping[str, Any], lookup: Lookup, *, cluster: str) -> dict[str, Any] | None:
    """Facts of `oldObject`, as if it were created now; None when the review has none."""
    old = request.get("oldObject")
    if type(old) is not dict:
        return None
    return _facts(request, old, lookup, cluster)


def only_metadata_differs(request: Mapping[str, Any]) -> bool:
    """Whether an update leaves all but labels, finalizers and the like as it was.

    Facts do not say what they could not read, so that the same facts need not be the same object.
    """
    new, old = request.get("object"), request.get("oldObject")
    if type(new) is not dict or type(old) is not dict or {**new, "metadata": 0} != {**old, "metadata": 0}:
        return False
    meta, before = new.get("metadata"), old.get("metadata")
    if type(meta) is not dict or type(before) is not dict:
        return bool(meta == before)
    return bool(meta.get("annotations") == before.get("annotations"))


def _facts(request: Mapping[str, Any], obj: Any, lookup: Lookup, cluster: str) -> dict[str, Any]:
    notes = Notes(lookup, text(request.get("namespace")))
    subject = _subject(request, obj, cluster, notes)
    found = Found()
    out: dict[str, Any] = {
        "v": 1,
        "subject": subject,
        "pods": found.pods,
        "images": [],
        "exposure": {"external": False},
        "stores": found.stores,
        "embedded": found.embedded,
        "unresolved": notes.unresolved,
        "unreadable": notes.unreadable,
    }
    operation = subject["operation"]
    if operation == "CONNECT":
        if _means_a_pod(subject):
            _target(out, subject, obj, found, notes)
    elif _binds(subject) or subject["subresource"] == "eviction":
        _target(out, subject, obj, found, notes)
    elif operation == "DELETE":
        pass  # nothing starts; deletes are judged by delete rules on the subject
    elif type(obj) is not dict:
        notes.bad("object", "the review holds no object")
    else:
        _object(out, subject, obj, found, notes)
    out["images"] = sorted(notes.images)
    try:
        orjson.dumps(out, option=orjson.OPT_STRICT_INTEGER)  # only whether it can be written
    except (TypeError, ValueError):
        out = _scrubbed(out)
        out["unreadable"].append({"path": "object", "why": "a string is not valid Unicode"})
    return out


def _subject(request: Mapping[str, Any], obj: Any, cluster: str, notes: Notes) -> dict[str, Any]:
    get = request.get
    kind = mapping(get("kind"), "request.kind", notes)
    user = mapping(get("userInfo"), "request.userInfo", notes)
    groups = items(user.get("groups"), "request.userInfo.groups", notes)
    operation = get("operation")
    if type(operation) is not str or operation not in _OPERATIONS:
        notes.bad("request.operation", "an operation is due here: CREATE, UPDATE, DELETE or CONNECT")
        operation = ""
    subject: dict[str, Any] = {
        "cluster": cluster,
        "namespace": notes.namespace,
        "group": text(kind.get("group")),
        "version": text(kind.get("version")),
        "kind": text(kind.get("kind")),
        "name": text(get("name")),
        "operation": operation,
        "resource": text(mapping(get("resource"), "request.resource", notes).get("resource")),
        "subresource": text(get("subResource")),
        "user": text(user.get("username")),
        "groups": [g for g in groups if type(g) is str],
        "dryRun": get("dryRun") is True,
    }
    if not subject["name"] and type(obj) is dict:
        metadata = obj.get("metadata")
        if type(metadata) is dict:
            subject["name"] = text(metadata.get("name"))
            if not subject["name"] and text(metadata.get("generateName")):
                subject["generateName"] = text(metadata.get("generateName"))
    return subject


def _means_a_pod(subject: Mapping[str, Any]) -> bool:
    """Whether a connection goes to a pod; others go to services, nodes and what extensions serve."""
    return subject["resource"] == "pods" or (not subject["group"] and str(subject["kind"]).startswith("Pod"))


def _binds(subject: Mapping[str, Any]) -> bool:
    return subject["subresource"] == "binding" or (subject["kind"] == "Binding" and not subject["group"])


def _object(
    out: dict[str, Any], subject: Mapping[str, Any], obj: Mapping[str, Any], found: Found, notes: Notes
) -> None:
    key = (subject["group"], subject["kind"])
    steps = TYPED.get(key)
    notes.strict = steps is not None
    if steps is not None:
        _typed(obj, steps, found, notes)
    elif key != ("", "Secret"):
        if not subject["kind"]:
            notes.bad("request.kind", "a kind is due here")
        out["exposure"] = exposure(subject["group"], subject["kind"], obj, notes)
        found.bucket = subject["kind"] == "Bucket"
        search(obj, found, notes)


def _typed(obj: Mapping[str, Any], steps: tuple[str, ...], found: Found, notes: Notes) -> None:
    node: Any = obj
    for step in steps:
        node = node.get(step) if type(node) is dict else None
    path = ".".join((*steps, "spec"))
    at = ".".join((*steps, "metadata.annotations"))
    spec = node.get("spec") if type(node) is dict else None
    if type(spec) is not dict:
        notes.bad(path, "a pod spec is due here")
        return
    metadata = mapping(node.get("metadata"), at.rpartition(".")[0], notes)
    annotations = mapping(metadata.get("annotations"), at, notes)
    pod = pod_facts(spec, path, annotations, at, notes)
    found.pods.append(pod)
    for key, value in annotations.items():
        if type(value) is str and "image" in value and key not in IGNORED_ANNOTATIONS:
            images = embedded_images(value)
            if images is not None:
                found.embedded.append({"path": f"{at}[{key}]", "images": images})
    if steps:
        _claim_templates(obj, pod, notes)


def _claim_templates(obj: Mapping[str, Any], pod: dict[str, Any], notes: Notes) -> None:
    """Claims that a StatefulSet makes for its pods may declare data."""
    spec = obj.get("spec")
    templates = spec.get("volumeClaimTemplates") if type(spec) is dict else None
    for index, template in enumerate(items(templates, "spec.volumeClaimTemplates", notes)):
        at = f"spec.volumeClaimTemplates[{index}]"
        claim_template(mapping(template, at, notes), pod, at, notes)


def _target(out: dict[str, Any], subject: Mapping[str, Any], obj: Any, found: Found, notes: Notes) -> None:
    """The pod that a connection, a binding or an eviction means; a binding starts it on a node."""
    pod = notes.lookup.pod(notes.namespace, subject["name"])
    metadata = mapping((pod or {}).get("metadata"), "target.metadata", notes)
    labels = mapping(metadata.get("labels"), "target.metadata.labels", notes)
    annotations = mapping(metadata.get("annotations"), "target.metadata.annotations", notes)
    if _binds(subject):  # the API server copies a binding's annotations to the pod
        own = mapping((obj if type(obj) is dict else {}).get("metadata"), "metadata", notes)
        annotations = {**annotations, **mapping(own.get("annotations"), "metadata.annotations", notes)}
    target: dict[str, Any] = {
        "pod": subject["name"],
        "known": pod is not None,
        "labels": {k: v for k, v in labels.items() if type(v) is str and k.isascii()},
        "datasets": list(parse_names(text(annotations.get(DATASETS))).names),
        "segments": list(parse_names(text(annotations.get(SEGMENTS))).names),
    }
    out["target"] = target
    if pod is None and subject["subresource"] != "eviction":
        notes.missing("Pod", subject["name"], "request.name")
    if not _binds(subject):
        return
    node = text(mapping((obj if type(obj) is dict else {}).get("target"), "target", notes).get("name"))
    if not node:
        notes.bad("target.name", "a node name is due here")
        return
    target["node"] = node
    spec = (pod or {}).get("spec")
    if type(spec) is dict:
        notes.strict = True
        bound = {**spec, "nodeName": node}
        found.pods.append(pod_facts(bound, "spec", annotations, "metadata.annotations", notes))


def _plural(kind: str) -> str:
    """The resource name of a lower-case kind, guessed as Kubernetes does (UnsafeGuessKindToResource)."""
    if not kind or kind.endswith("endpoints"):
        return kind
    if kind.endswith("s"):
        return kind + "es"
    return kind[:-1] + "ies" if kind.endswith("y") else kind + "s"


def request_for(
    manifest: Mapping[str, Any], *, namespace: str = "default", user: str = "sluicegate:check"
) -> dict[str, Any]:
    """The AdmissionReview request that creating a manifest would cause.

    Args:
        manifest: a Kubernetes object.
        namespace: where an object without a namespace goes.
        user: whose request it would be.
    """
    api_version, kind = text(manifest.get("apiVersion")), text(manifest.get("kind"))
    group, _, version = api_version.rpartition("/")
    metadata = manifest.get("metadata")
    metadata = metadata if type(metadata) is dict else {}
    name = text(metadata.get("name"))
    where = "" if kind in CLUSTER_SCOPED else text(metadata.get("namespace")) or namespace
    return {
        "uid": "",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": _plural(kind.lower())},
        "operation": "CREATE",
        "name": name,
        "namespace": name if kind == "Namespace" else where,
        "userInfo": {"username": user, "groups": []},
        "object": manifest,
        "oldObject": None,
        "dryRun": True,
    }


def _scrubbed(value: Any) -> Any:
    """The same with every string made valid Unicode; facts are shallow, so recursion is bounded."""
    if type(value) is str:
        return value.encode("utf-8", "replace").decode("utf-8")
    if type(value) is dict:
        return {k: _scrubbed(v) for k, v in value.items()}
    if type(value) is list:
        return [_scrubbed(v) for v in value]
    return value
