"""Files on disk: a name that appears only when what stands under it is durable, whole or not at all.

A rename is atomic and not durable: the octets are synced before it (else the name could outlive them), the
folder after it (else the name could be lost). What fails on the way leaves the old file and no other.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def replace(path: Path, parts: Iterable[bytes | memoryview], mode: int = 0o600) -> None:
    """Write a file beside and put it in place of `path`: a reader sees the old one or the new one.

    Args:
        path: In an existing folder.
        parts: Its octets, in order.
        mode: Permissions; it never has wider ones.

    Raises:
        OSError: The old file stands, if there was one; only where the last sync failed it may be the new one.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
        publish(temporary, path, mode)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a full disk needs the space
        raise


def publish(temporary: Path, path: Path, mode: int = 0o600) -> None:
    """Put a finished file in place of another one in the same folder, durably.

    Raises:
        OSError: As `replace`; the temporary file may still be there.
    """
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_folder(path.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it that are missing, with durable names; one that is there stays.

    Its own name is synced even where it is there: the process that made it may have died before it did so.

    Args:
        folder: To make.
        mode: Its permissions, as far as the process's mask lets them; those above it have the mask's own.

    Raises:
        OSError: It cannot be made, or is a file, or its name may not be durable.
    """
    missing = [above for above in folder.parents if not above.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for made in (*reversed(missing), folder):
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
