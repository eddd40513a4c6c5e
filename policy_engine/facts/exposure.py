"""Whether an object opens something to the outside, and object stores that a custom resource names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.declared import scheme_and_host
from policy_engine.facts.notes import Notes, items, mapping, text

_CLEAR: Final = frozenset({"http", "ftp"})


def exposure(group: str, kind: str, obj: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """`{external, serviceType?, externalIPs?, hosts?}` of a Service or Ingress; else not external."""
    if kind == "Service" and group == "":
        return _service(mapping(obj.get("spec"), "spec", notes), notes)
    if kind == "Ingress":
        rules = items(mapping(obj.get("spec"), "spec", notes).get("rules"), "spec.rules", notes)
        hosts = sorted({text(r.get("host")) or "*" for r in rules if type(r) is dict})
        return {"external": True, "hosts": hosts}
    return {"external": False}


def _service(spec: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    kind = text(spec.get("type")) or "ClusterIP"
    addresses = sorted(
        {a for a in items(spec.get("externalIPs"), "spec.externalIPs", notes) if type(a) is str}
    )
    out: dict[str, Any] = {
        "external": kind in {"LoadBalancer", "NodePort"} or bool(addresses),
        "serviceType": kind,
    }
    if addresses:
        out["externalIPs"] = addresses
    return out


def store(node: Mapping[str, Any], path: str, name: str, *, certain: bool) -> dict[str, Any] | None:
    """An object store: the spec of a Bucket (`certain`), or any map with an endpoint and a bucket."""
    address = text(node.get("endpoint"))
    bucket = node.get("bucketName") or node.get("bucket")
    if not certain and not (address and (type(bucket) is str or "insecure" in node)):
        return None
    scheme, host = scheme_and_host(address)
    if address and not scheme and not host:
        host = _bare_host(address)
    return {
        "path": path,
        "name": name,
        "provider": text(node.get("provider")),
        "bucket": text(bucket),
        "scheme": scheme,
        "host": host,
        "region": text(node.get("region")),
        "insecure": scheme in _CLEAR or node.get("insecure") is True,
    }


def _bare_host(address: str) -> str:
    """A host without scheme and port: here the field itself says that it is one."""
    return scheme_and_host(f"https://{address.strip()}")[1]
