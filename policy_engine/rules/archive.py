"""The bundle's container: a gzip'ed tar, written so that equal content gives equal bytes everywhere.

Compressors differ between zlib versions, so the gzip stream holds stored blocks only (RFC 1951 section
3.2.4): the format needs no compressor and the bytes depend on nothing but the content. Reading trusts
nothing: sizes are bounded before and while inflating, and only plain files with plain names pass.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from typing import Final

from policy_engine.errors import BundleRefused
from policy_engine.limits import LIMITS, Limits

# ID1 ID2, CM = deflate, no flags, MTIME 0, XFL 0, OS 255 (unknown): RFC 1952 section 2.3.
_GZIP_HEAD: Final = bytes.fromhex("1f8b08000000000000ff")
_STORED_MAX: Final = 65_535  # octets of one stored block


def pack(files: Mapping[str, bytes]) -> bytes:
    """Pack files, sorted by name, with every other property fixed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(files[name]), 0o644, 0
            tar.addfile(entry, io.BytesIO(files[name]))
    return _gzip_stored(buffer.getvalue())


def unpack(data: bytes, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Read a container that may be hostile.

    Raises:
        BundleRefused: Too large, damaged, or with anything but plain files with plain, unique names.
    """
    if len(data) > limits.bundle_bytes:
        raise BundleRefused(f"the bundle is larger than {limits.bundle_bytes} bytes")
    try:
        with tarfile.open(fileobj=io.BytesIO(_gunzip(data, limits.bundle_bytes)), mode="r:") as tar:
            return _members(tar, limits)
    except (tarfile.TarError, zlib.error, ValueError, OverflowError, OSError, RecursionError, EOFError):
        raise BundleRefused("the bundle is not a readable tar.gz") from None


def _members(tar: tarfile.TarFile, limits: Limits) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for count, entry in enumerate(tar, start=1):
        if count > limits.bundle_members:
            raise BundleRefused(f"the bundle holds more than {limits.bundle_members} files")
        if entry.type != tarfile.REGTYPE or entry.issparse():
            raise BundleRefused("the bundle holds something that is no plain file")
        if not _plain_name(entry.name) or entry.name in files:
            raise BundleRefused("the bundle holds a file with a repeated, absolute or climbing name")
        stream = tar.extractfile(entry)
        content = b"" if stream is None else stream.read(limits.bundle_bytes + 1)
        if len(content) != entry.size:
            raise BundleRefused("the bundle ends inside a file")
        files[entry.name] = content
    return files


def _plain_name(name: str) -> bool:
    parts = name.split("/")
    usual = name.isascii() and name.isprintable() and "\\" not in name
    return usual and all(part not in {"", ".", ".."} for part in parts)


def _gunzip(data: bytes, limit: int) -> bytes:
    """Inflate at most `limit` octets of exactly one gzip member."""
    inflater = zlib.decompressobj(wbits=31)
    content = inflater.decompress(data, limit)
    if not inflater.eof or inflater.unconsumed_tail or inflater.unused_data:
        raise BundleRefused("the bundle is truncated, has trailing bytes or inflates beyond the limit")
    return content


def _gzip_stored(content: bytes) -> bytes:
    blocks = []
    starts = range(0, len(content), _STORED_MAX) or range(1)
    for start in starts:
        chunk = content[start : start + _STORED_MAX]
        final = start + _STORED_MAX >= len(content)
        blocks.append(struct.pack("<BHH", final, len(chunk), len(chunk) ^ 0xFFFF) + chunk)
    tail = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    return _GZIP_HEAD + b"".join(blocks) + tail
