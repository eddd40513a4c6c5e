"""Reads a directory of declared state and reports everything that is wrong with it, at once.

resources = load(Path("estate"))          # raises ResourceErrors
resources = parse({"site.yaml": b"..."})  # the same from bytes: for tests and for other sources
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from policy_engine.resources.resource_set import ResourceSet


def load(directory: Path | str) -> ResourceSet:
    """The declared state in a directory (`*.yaml`, `*.yml`, folders included).

    Raises:
        ResourceErrors: with every problem found in any file.
    """
    raise NotImplementedError


def parse(files: Mapping[str, bytes]) -> ResourceSet:
    """The declared state in named files that are already in memory.

    Raises:
        ResourceErrors: with every problem found in any file.
    """
    raise NotImplementedError
