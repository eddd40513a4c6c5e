"""The question of `POST /v1/decide`: a request as the webhook gets it, or a manifest as if it were created.

Decides whether the question can be asked at all. What an API server would refuse before it calls a webhook
is refused here, each with the path of its field; what is inside a readable object is for the rules to judge.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import Field, model_validator

from policy_engine.api_caller import NAME, Strict
from policy_engine.facts import request_for
from policy_engine.facts.extract import CLUSTER_SCOPED, TYPED

_API_VERSION: Final = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?v[a-z0-9]+")
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

Wrong = tuple[str, str]  # path of a field, what is due there


class DecideIn(Strict):
    """A question to the policy: an AdmissionRequest, or a manifest as if it were created."""

    cluster: str = Field(pattern=NAME, max_length=253, description="Whose API server would ask.")
    request: dict[str, Any] | None = Field(
        default=None, description="The `request` of an AdmissionReview; `uid` may be left out."
    )
    object: dict[str, Any] | None = Field(
        default=None, description="One Kubernetes object, judged as if it were created."
    )
    namespace: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        max_length=63,
        description="Where an object goes that names no namespace; `default` when left out.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> "DecideIn":
        if (self.request is None) == (self.object is None):
            raise ValueError("give either request or object")
        return self


def request_of(question: DecideIn) -> dict[str, Any]:
    """The AdmissionRequest that is asked about.

    Raises:
        RequestValidationError: 422 with the paths of the fields that are wrong.
    """
    if question.object is None:
        request = question.request or {}
        _refuse(_wrong_request(request, question.namespace))
        return request
    manifest = question.object
    _refuse(_wrong_envelope(manifest))
    _refuse(_wrong_place(manifest, question.namespace))
    return request_for(manifest, namespace=question.namespace or "default")


def _refuse(wrong: Iterator[Wrong]) -> None:
    errors = [{"loc": ("body", *path.split(".")), "msg": due} for path, due in wrong]
    if errors:
        raise RequestValidationError(errors)


def _wrong_request(request: Mapping[str, Any], namespace: str | None) -> Iterator[Wrong]:
    if namespace is not None:
        yield "namespace", "goes with object only: a request names its own"
    if request.get("kind") == "AdmissionReview":
        yield "request.kind", "this is a whole AdmissionReview: give what its field `request` holds"
        return
    if not isinstance(request.get("kind"), dict):
        yield "request.kind", "an object {group, version, kind} is due here"
    if request.get("operation", "CREATE") not in _OPERATIONS:
        yield "request.operation", "CREATE, UPDATE, DELETE or CONNECT is due here"
    if not isinstance(request.get("oldObject") or {}, dict):
        yield "request.oldObject", "an object is due here, or nothing"
    if not isinstance(request.get("uid", ""), str):
        yield "request.uid", "text is due here, or nothing"


def _wrong_envelope(manifest: Mapping[str, Any]) -> Iterator[Wrong]:
    version, kind, meta = (manifest.get(name) for name in ("apiVersion", "kind", "metadata"))
    if not (isinstance(version, str) and len(version) < 300 and _API_VERSION.fullmatch(version)):
        yield "object.apiVersion", "an API version such as v1 or batch/v1 is due here"
    if not (isinstance(kind, str) and _KIND.fullmatch(kind)):
        yield "object.kind", "a kind such as Pod is due here"
    elif kind == "AdmissionReview":
        yield "object.kind", "this is a review: give what its field `request` holds as request"
    elif kind.endswith("List") and "items" in manifest:
        yield "object.items", "one object at a time: ask for each item"
    if not isinstance(meta, dict):
        yield "object.metadata", "an object with a name is due here"
    elif not _named(meta):
        yield "object.metadata.name", "a name is due here, or generateName"


def _named(meta: Mapping[str, Any]) -> bool:
    given = [meta[field] for field in ("name", "generateName") if meta.get(field) is not None]
    return any(given) and all(isinstance(name, str) and len(name) <= 253 for name in given)


def _wrong_place(manifest: Mapping[str, Any], namespace: str | None) -> Iterator[Wrong]:
    """The namespace, and the pod spec of kinds whose schema is known."""
    kind, own = manifest["kind"], manifest["metadata"].get("namespace")
    at = "object.metadata.namespace"
    if own is not None and not (isinstance(own, str) and (own == "" or _NAMESPACE.fullmatch(own))):
        yield at, "the name of a namespace is due here"
    elif own and kind in CLUSTER_SCOPED:
        yield at, f"a {kind} stands in no namespace: leave it out"
    elif own and namespace is not None and own != namespace:
        yield at, "differs from the field namespace: leave one of them out"
    steps = TYPED.get((manifest["apiVersion"].rpartition("/")[0], kind))
    node: Any = manifest if steps is not None else None
    path = "object"
    for step in (*steps, "spec") if steps is not None else ():
        node, path = node.get(step), f"{path}.{step}"
        if not isinstance(node, dict):
            yield path, "an object is due here" if step != "spec" else "a spec is due here"
            return
