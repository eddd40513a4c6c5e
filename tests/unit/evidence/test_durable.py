"""Durable files: synced before they have their name, the folder after; whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from evidence import durable


def test_the_octets_are_synced_before_the_name_and_the_folder_after(tmp_path: Path, monkeypatch) -> None:
    path, seen = tmp_path / "a.zip", []
    path.write_bytes(b"old")
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append(("folder" if folder else "file", path.read_bytes()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    durable.replace(path, [b"ne", memoryview(b"w")])
    assert [("file", b"old"), ("folder", b"new")] == seen
    assert (0o600, ["a.zip"]) == (stat.S_IMODE(path.stat().st_mode), os.listdir(tmp_path))


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_what_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch, call: str) -> None:
    path = tmp_path / "a.zip"
    durable.replace(path, [b"old"], 0o400)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        durable.replace(path, [b"new"])
    assert (b"old", ["a.zip"]) == (path.read_bytes(), os.listdir(tmp_path))
    assert 0o400 == stat.S_IMODE(path.stat().st_mode)


def test_octets_that_cannot_be_had_leave_nothing(tmp_path: Path) -> None:
    def parts():
        yield b"half"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        durable.replace(tmp_path / "a.zip", parts())
    assert [] == os.listdir(tmp_path)


def test_the_names_of_new_folders_are_durable_from_the_top_down(tmp_path: Path, synced: list[Path]) -> None:
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert [tmp_path, tmp_path / "a", tmp_path / "a" / "b"] == synced
    synced.clear()
    durable.make_folder(tmp_path / "a" / "b")  # whoever made it may have died before it was synced
    assert ([tmp_path / "a"], ["c"]) == (synced, os.listdir(tmp_path / "a" / "b"))


def test_a_relative_folder_is_made_too(tmp_path: Path, synced: list[Path], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    durable.make_folder(Path("a"))
    durable.make_folder(Path("b/c"))
    assert [tmp_path, tmp_path, tmp_path / "b"] == synced


def test_a_file_where_a_folder_is_needed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(OSError, match="exists|Not a directory"):
            durable.make_folder(path)
