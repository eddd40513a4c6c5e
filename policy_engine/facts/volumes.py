"""Volumes of a PodSpec: what they mount, and the images, host paths and declared data they bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.containers import add_image
from policy_engine.facts.declared import declare
from policy_engine.facts.lookup import Claim, Source, sources
from policy_engine.facts.notes import Notes, items, mapping, text


def add_volumes(pod: dict[str, Any], value: Any, path: str, notes: Notes) -> None:
    """Adds `volumes` of a PodSpec, and what they bring: images, host paths, declared data."""
    for index, volume in enumerate(items(value, path, notes)):
        at = f"{path}[{index}]"
        if type(volume) is not dict:
            notes.bad(at, "a volume is due here")
            continue
        name = text(volume.get("name"))
        # One source per volume; none at all means emptyDir. A null source is no source.
        kinds = [k for k, v in volume.items() if k != "name" and v is not None]
        if len(kinds) > 1:
            notes.bad(at, "a volume has one source")
        for kind in kinds or ["emptyDir"]:
            entry: dict[str, Any] = {"name": name, "type": kind if kind.isascii() else "unknown"}
            pod["volumes"].append(entry)
            reader = _SOURCES.get(kind)
            if reader is not None:
                reader(mapping(volume[kind], f"{at}.{kind}", notes), entry, pod, f"{at}.{kind}", notes)


def _pvc(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    name = text(source.get("claimName"))
    entry["claim"] = name
    claim = notes.lookup.claim(notes.namespace, name)
    if claim is None:
        notes.missing("PersistentVolumeClaim", name, f"{at}.claimName")
    else:
        read_claim(claim, f"PersistentVolumeClaim {name}", entry, pod, at, notes)


def read_claim(  # noqa: PLR0917 - as the readers of sources
    claim: Claim, via: str, entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    """Adds what a claim and the volume behind it declare."""
    if claim.driver:
        entry["driver"] = claim.driver
    declared = declare(claim.annotations, at, pod, notes)
    for source in (claim.attributes, claim.volume):
        declared |= declare(source, at, pod, notes, via=via)
    pod["declared"] |= declared
    for what, name in claim.missing:
        notes.missing(what, name, at)
    _copies(claim.sources, declared, via, pod, at, notes)


def _copies(  # noqa: PLR0917 - as the readers of sources
    found: tuple[Source, ...], declared: bool, via: str, pod: dict[str, Any], at: str, notes: Notes
) -> None:
    """Adds what a copy brings from what it was made of. What is not known must be declared on the copy.

    Args:
        found: what was copied.
        declared: whether the copy itself declares its data.
        via: the copy, or what it was made of, as the object names it.
        pod: is added to.
        at: path of the volume.
        notes: collects what is unresolved.
    """
    seen: set[Source] = set()
    left = [(source, declared) for source in found]
    while left:
        source, said = left.pop()
        if source in seen:
            continue
        seen.add(source)
        kind, namespace, name = source
        claim = notes.lookup.claim(namespace, name) if kind == "PersistentVolumeClaim" else None
        if claim is None:
            if not said:
                notes.missing(kind, name, at)
            continue
        for values in (claim.annotations, claim.attributes, claim.volume):
            said |= declare(values, at, pod, notes, via=via)
        pod["declared"] |= said
        left += [(further, said) for further in claim.sources]


def _csi(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    entry["driver"] = text(source.get("driver"))
    attributes = mapping(source.get("volumeAttributes"), f"{at}.volumeAttributes", notes)
    pod["declared"] |= declare(attributes, f"{at}.volumeAttributes", pod, notes)


def _ephemeral(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    del entry
    template = mapping(source.get("volumeClaimTemplate"), f"{at}.volumeClaimTemplate", notes)
    claim_template(template, pod, f"{at}.volumeClaimTemplate", notes)


def claim_template(template: Mapping[str, Any], pod: dict[str, Any], at: str, notes: Notes) -> None:
    """Adds what a claim template declares, and what the volume or the copy that it names brings."""
    metadata = mapping(template.get("metadata"), f"{at}.metadata", notes)
    annotations = mapping(metadata.get("annotations"), f"{at}.metadata.annotations", notes)
    declared = declare(annotations, f"{at}.metadata.annotations", pod, notes)
    pod["declared"] |= declared
    spec = mapping(template.get("spec"), f"{at}.spec", notes)
    bound = text(spec.get("volumeName"))
    if bound:
        volume = notes.lookup.volume(bound)
        if volume is None:
            notes.missing("PersistentVolume", bound, f"{at}.spec.volumeName")
        else:
            read_claim(volume, f"PersistentVolume {bound}", {}, pod, f"{at}.spec.volumeName", notes)
    copied = sources(spec, notes.namespace)
    via = " and ".join(f"{kind} {name}" for kind, _, name in copied)
    _copies(copied, declared, via, pod, f"{at}.spec.dataSource", notes)


def _image(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    ref = source.get("reference")
    if type(ref) is str and ref:
        add_image(ref, pod, notes, name=entry["name"], role="volume", path=f"{at}.reference")
    else:
        notes.bad(f"{at}.reference", "an image reference is due here")


def _host_path(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    del at, notes
    entry["path"] = text(source.get("path"))
    pod["hostPaths"].append(entry["path"])


def _nfs(
    source: Mapping[str, Any], entry: dict[str, Any], pod: dict[str, Any], at: str, notes: Notes
) -> None:
    del pod, at, notes
    entry["server"] = text(source.get("server"))
    entry["path"] = text(source.get("path"))


_SOURCES: Final = {
    "persistentVolumeClaim": _pvc,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
    "hostPath": _host_path,
    "nfs": _nfs,
}
