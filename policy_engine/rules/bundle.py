"""A policy bundle: loaded from bytes that may be hostile, believed only by its digest.

The container (``archive``) holds::

    .manifest           {"revision", "roots", "rego_version",
                         "metadata": {policy_digest, version, opa, rules}}
    policy.wasm         what the embedded engine runs
    capabilities.json   what the policy was allowed to use
    <pack>/*.rego       the sources, for a real OPA server and for people
    build/build.rego    the policy digest as a constant, made at build

so one file serves both engines, and one digest covers code, texts and sources alike.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import orjson

from evidence.canonical import canonical
from policy_engine.errors import BundleRefused
from policy_engine.limits import LIMITS, Limits
from policy_engine.rules import archive
from policy_engine.rules.metadata import RuleMeta, from_dict
from policy_engine.rules.trust import Trusted, in_the_wheel

FILE: Final = "sluicegate.tar.gz"
GENERATED: Final = "build/build.rego"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle.

    Attributes:
        wasm: The compiled module.
        metadata: Rule id -> METADATA.
        policy_digest: What every complete result must carry.
        bundle_digest: SHA-256 of the container.
        version: Grows with each changed bundle.
        sources: Name -> Rego source, the generated constant included.
    """

    wasm: bytes
    metadata: Mapping[str, RuleMeta]
    policy_digest: str
    bundle_digest: str
    version: int
    sources: Mapping[str, bytes]


def policy_digest(sources: Mapping[str, bytes], capabilities: bytes) -> str:
    """SHA-256 over the sorted sources (METADATA is their comments) and the capabilities.

    Args:
        sources: Name -> bytes, without tests and without the generated constant.
        capabilities: Bytes of capabilities.json.
    """
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in sources.items()}
    listed["capabilities.json"] = hashlib.sha256(capabilities).hexdigest()
    return hashlib.sha256(canonical(listed)).hexdigest()


def constant(digest: str) -> bytes:
    """The generated module that gives the policy its own digest; excluded from what it digests."""
    return f'package sluicegate.build\n\npolicy_digest := "{digest}"\n'.encode("ascii")


def load(data: bytes, trusted: Trusted, limits: Limits = LIMITS) -> Bundle:
    """Verify and read a bundle.

    Args:
        data: The container as it came.
        trusted: Digests and version that it must have.
        limits: Sizes.

    Raises:
        BundleRefused: With the step that failed.
    """
    # 1. Exactly the bytes that are trusted.
    digest = hashlib.sha256(data[: limits.bundle_bytes + 1]).hexdigest()
    if digest != trusted.bundle_digest:
        raise BundleRefused(
            "the policy bundle is not the trusted one", fix="reinstall, or build it with `make rego`"
        )
    # 2. A container of bounded size with plain files only.
    members = archive.unpack(data, limits)
    # 3. A manifest that says what it is.
    about = _about(members)
    # 4. The sources are those that the policy digest names, and the constant says the same digest.
    sources = {name: content for name, content in members.items() if name.endswith(".rego")}
    written = {name: content for name, content in sources.items() if name != GENERATED}
    found = policy_digest(written, members.get("capabilities.json", b""))
    if found != about["policy_digest"] or sources.get(GENERATED) != constant(found):
        raise BundleRefused("the bundle's sources are not those that its policy digest names")
    # 5. Digest and version are the trusted ones.
    if (found, about["version"]) != (trusted.policy_digest, trusted.version):
        raise BundleRefused("the bundle carries another policy digest or version than the trusted one")
    return Bundle(
        wasm=members.get("policy.wasm", b""),
        metadata=_rules(about),
        policy_digest=found,
        bundle_digest=digest,
        version=trusted.version,
        sources=sources,
    )


def shipped() -> Bundle:
    """The bundle that ships with the program, trusted by the digest that ships with it.

    Raises:
        BundleRefused: The file is missing or is not the one that the digest names.
    """
    try:
        data = files("policy_engine.rules").joinpath("bundles", FILE).read_bytes()
    except OSError:
        raise BundleRefused(
            "the policy bundle is missing", fix="reinstall, or build it with `make rego`"
        ) from None
    return load(data, in_the_wheel())


def _about(members: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        about: dict[str, Any] = orjson.loads(members[".manifest"])["metadata"]
        complete = isinstance(about["rules"], dict) and isinstance(about["version"], int)
        named = _DIGEST.fullmatch(about["policy_digest"]) is not None
    except (KeyError, TypeError, ValueError):
        raise BundleRefused("the bundle has no readable manifest") from None
    if not (complete and named):
        raise BundleRefused("the bundle's manifest is incomplete")
    return about


def _rules(about: Mapping[str, Any]) -> dict[str, RuleMeta]:
    try:
        return {rule: from_dict(entry) for rule, entry in about["rules"].items()}
    except (KeyError, TypeError, AttributeError):
        raise BundleRefused("the bundle's metadata is incomplete") from None
