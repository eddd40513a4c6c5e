"""Why a bundle is believed. Here: the one that ships is named by digest in the wheel that ships it.

``bundles/bundle.json`` is written by `build` beside the bundle and installed with this module; whoever
can change one can change the other and this code too, so the trust is that in the installed program.
Signed bundles from elsewhere need trusted keys with a threshold and a version that never falls; they
get their own function here, and :func:`policy_engine.rules.bundle.load` stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import orjson

from policy_engine.errors import BundleRefused

FILE: Final = "bundle.json"


@dataclass(frozen=True, slots=True)
class Trusted:
    """What a bundle must be.

    Attributes:
        bundle_digest: SHA-256 (hex) of the container.
        policy_digest: Digest over sources and capabilities, which results carry.
        version: Version that the manifest names.
    """

    bundle_digest: str
    policy_digest: str
    version: int


def in_the_wheel() -> Trusted:
    """The digests that ship with this program.

    Raises:
        BundleRefused: They are missing or unreadable.
    """
    try:
        return parse(files("policy_engine.rules").joinpath("bundles", FILE).read_bytes())
    except (OSError, KeyError, TypeError, ValueError):
        raise BundleRefused(
            "the policy bundle's digest is missing", fix="reinstall, or build it with `make rego`"
        ) from None


def parse(raw: bytes) -> Trusted:
    """Read ``bundle.json``; KeyError, TypeError or ValueError when it is damaged."""
    about = orjson.loads(raw)
    return Trusted(str(about["bundle_digest"]), str(about["policy_digest"]), int(about["version"]))
