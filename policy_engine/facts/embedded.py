"""Manifests inside strings (an Argo `manifest`, a ConfigMap entry, an annotation with a pod template).

They are found by their lines, not parsed: such strings are often templates, which no YAML parser reads, and
what they create is judged in full when it is created. So this says only: here is one, naming these images.
"""

from __future__ import annotations

import re
from typing import Final

from policy_engine.limits import LIMITS

# `image: x`, `- image: "x"` in YAML; "image": "x" in JSON.
_LINE: Final = re.compile(r"^[ \t]*(?:-[ \t]+)?image[ \t]*:[ \t]+([^\s#][^\r\n]*)$", re.MULTILINE)
_JSON: Final = re.compile(r'"image"\s*:\s*"([^"\\\r\n]{1,512})"')
# kubectl keeps the whole object in this annotation; nothing reads it to run something.
IGNORED_ANNOTATIONS: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def embedded_images(value: str) -> list[str] | None:
    """Images that a manifest inside the string names, sorted; None when the string holds no manifest.

    Empty for a string that is too long to search: it is flagged all the same.
    """
    if "image" not in value:
        return None
    if len(value) > LIMITS.embedded_chars:
        return []
    if "containers" not in value and "kind" not in value and "Containers" not in value:
        return None
    found = {_bare(m) for m in _LINE.findall(value)}
    found.update(_JSON.findall(value))
    found.discard("")
    return sorted(found) or None


def _bare(value: str) -> str:
    """The scalar without quotes or a trailing comment."""
    value = value.strip()
    if value[:1] in {'"', "'"}:
        return value[1:].partition(value[0])[0]
    return value.partition(" #")[0].strip()
