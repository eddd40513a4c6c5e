"""One PodSpec -> the `pods[]` entry of facts. The hot path: one pass, look-ups in prepared tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.containers import accelerators, container_facts
from policy_engine.facts.declared import declare
from policy_engine.facts.notes import Notes, items, text
from policy_engine.facts.placement import placement_facts
from policy_engine.facts.volumes import add_volumes

_ROLES: Final = (
    ("containers", "container"),
    ("initContainers", "init"),
    ("ephemeralContainers", "ephemeral"),
)


def pod_facts(
    spec: Mapping[str, Any],
    path: str,
    annotations: Mapping[str, Any],
    at: str,
    notes: Notes,
    *,
    name: str = "",
) -> dict[str, Any]:
    """The facts of one PodSpec.

    Args:
        spec: the PodSpec.
        path: where it stands in the object.
        annotations: of the pod template.
        at: path of those annotations.
        notes: collects every image, what is unreadable and what is unresolved; `notes.strict` says that
            the schema is known, so that containers and their images are required.
        name: of the pod in its object, the same when a list is put in another order; "": the path.
    """
    get = spec.get
    pod: dict[str, Any] = {
        "path": path,
        "name": name or path,
        "images": [],
        "placement": placement_facts(spec, path, notes),
        "volumes": [],
        "datasets": [],
        "segments": [],
        "declared": False,
        "endpoints": [],
        "hostNetwork": get("hostNetwork") is True,
        "hostPaths": [],
        "accelerators": {},
    }
    if annotations:
        pod["declared"] = declare(annotations, at, pod, notes)
    need = []
    for key, role in _ROLES:
        containers = get(key)
        if containers is None:
            if notes.strict and role == "container":
                notes.bad(f"{path}.{key}", "a list of containers is due here")
            continue
        for index, container in enumerate(items(containers, f"{path}.{key}", notes)):
            if type(container) is not dict:
                notes.bad(f"{path}.{key}[{index}]", "a container is due here")
                continue
            asked = container_facts(container, f"{path}.{key}[{index}]", role, pod, notes)
            if asked is not None:
                need.append(asked)
    if need:
        pod["accelerators"] = accelerators(need)
    if get("priorityClassName"):
        pod["priorityClass"] = text(get("priorityClassName"))
    if get("volumes") is not None:
        add_volumes(pod, get("volumes"), f"{path}.volumes", notes)
    return pod
