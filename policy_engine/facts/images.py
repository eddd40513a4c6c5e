r"""Image references by the grammar of the OCI distribution project (its `reference` package).

    reference = name [ ":" tag ] [ "@" digest ]        name = [ domain "/" ] path
    domain    = host [ ":" port ]                      host = labels | IPv4 | "[" IPv6 "]"
    path      = component { "/" component }
    component = [a-z0-9]+ { ("." | "_" | "__" | "-"+) [a-z0-9]+ }
    tag       = \w [\w.-]{0,127}   digest = ("sha256" | "sha512") ":" lower-case hex

Digest algorithms are the two registered ones with their exact lengths: anything else would let a report
say "pinned" of something that is not. The result is normalised as clients do (`nginx` is
`docker.io/library/nginx`), the registry in lower case. A reference that does not parse yields its reason.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from policy_engine.limits import LIMITS

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])"
_DOMAIN: Final = re.compile(rf"{_HOST}(?::[0-9]+)?", re.ASCII)
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]+", re.ASCII)
_HEX_LENGTH: Final = {"sha256": 64, "sha512": 128}
_NAME_CHARS: Final = 255  # characters of domain and path together (distribution: NameTotalLengthMax)


class Malformed(ValueError):  # noqa: N818 - the word for what it is
    """Not an image reference; `str()` says why, without repeating the reference."""


def parse_reference(ref: str) -> dict[str, str]:
    """`{registry, repository, tag?, digest?}` of a reference.

    Raises:
        Malformed: the reference does not match the grammar.
    """
    if not ref:
        raise Malformed("is empty")
    if len(ref) > LIMITS.image_reference_chars:
        raise Malformed("is too long")
    rest, at, digest = ref.partition("@")
    out: dict[str, str] = {}
    name, tag = _split_tag(rest)
    out["registry"], out["repository"] = _split_name(name)
    if tag is not None:
        if _TAG.fullmatch(tag) is None:
            raise Malformed("has a malformed tag")
        out["tag"] = tag
    if at:
        _check_digest(digest)
        out["digest"] = digest
    return out


def _split_tag(rest: str) -> tuple[str, str | None]:
    """Name and tag: a colon after the last slash begins a tag; one before it belongs to a port."""
    slash = rest.rfind("/")
    colon = rest.find(":", slash + 1)
    if colon < 0 or (slash < 0 and rest.startswith("[")):
        return rest, None
    return rest[:colon], rest[colon + 1 :]


def _split_name(name: str) -> tuple[str, str]:
    first, slash, path = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        if _DOMAIN.fullmatch(first) is None:
            raise Malformed("has a malformed registry name")
        registry = first.lower()
    else:
        registry, path = "docker.io", name
    if len(name) > _NAME_CHARS:
        raise Malformed("has a name of more than 255 characters")
    if _PATH.fullmatch(path) is None:
        raise Malformed(_why_path(path))
    if registry in {"docker.io", "index.docker.io"}:
        registry = "docker.io"
        if "/" not in path:
            if len(path) == 64 and _HEX.fullmatch(path):
                raise Malformed("is a bare image id, not a name")
            path = f"library/{path}"
    return registry, path


def _why_path(path: str) -> str:
    if not path or path.isspace():
        return "has no repository name"
    if path != path.strip():
        return "has white space around it"
    if path.lower() != path and _PATH.fullmatch(path.lower()):
        return "has upper-case letters in its repository name"
    return "has a malformed repository name"


def _check_digest(digest: str) -> None:
    algorithm, colon, value = digest.partition(":")
    if not colon:
        raise Malformed("has a digest without an algorithm")
    length = _HEX_LENGTH.get(algorithm)
    if length is None:
        raise Malformed("has a digest of an unknown algorithm (sha256 and sha512 are known)")
    if len(value) != length:
        raise Malformed(f"has a {algorithm} digest that is not {length} characters long")
    if _HEX.fullmatch(value) is None:
        raise Malformed("has a digest that is not lower-case hex")


@lru_cache(maxsize=4096)
def _cached(ref: str) -> dict[str, str]:
    try:
        return {"ref": ref, **parse_reference(ref)}
    except Malformed as error:
        return {"ref": ref, "invalid": str(error)}


def image_fields(ref: str) -> dict[str, str]:
    """`{ref, registry, repository, tag?, digest?}` or `{ref, invalid}`. Shared: callers must copy it."""
    if len(ref) > LIMITS.image_reference_chars:  # never a key of the cache, and cut in the facts
        return {"ref": ref[: LIMITS.image_reference_chars], "invalid": "is too long"}
    return _cached(ref)
