"""The independent witness: what it calls clear, and that it imports nothing that handles keys."""

from __future__ import annotations

import subprocess
import sys

import pytest

from keymgmt.drivers.software_relay import Direction, classify
from keymgmt.drivers.software_traffic import Sink, Stream

MACSEC = bytes(12) + b"\x88\xe5"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (MACSEC + b"\x2e" + bytes(40), ("88e5/EC", 2, False)),
        (MACSEC + b"\x22" + bytes(40), ("88e5/--", 2, True)),
        (MACSEC + b"\x29" + bytes(40), ("88e5/E-", 1, True)),
        (MACSEC + b"\x24" + bytes(40), ("88e5/-C", 0, True)),
        (bytes(12) + b"\x08\x00" + bytes(40), ("0800", None, True)),
        (MACSEC, ("88e5", None, True)),
        (b"abc", ("short", None, True)),
    ],
)
def test_clear_is_all_that_is_not_macsec_with_e_and_c(
    frame: bytes, expected: tuple[str, int | None, bool]
) -> None:
    assert expected == classify(frame)


def test_a_canary_is_found_anywhere_in_a_frame() -> None:
    seen = Direction(b"CANARY")
    seen.saw(MACSEC + b"\x2e" + bytes(20) + b"xxCANARYxx")
    seen.saw(MACSEC + b"\x2e" + bytes(40))
    figures = seen.to_json()
    assert (2, 1, 0, {"2": 2}) == tuple(figures[name] for name in ("frames", "canary_seen", "clear", "by_an"))


def test_the_relay_imports_nothing_that_handles_keys() -> None:
    code = (
        "import sys, keymgmt.drivers.software_relay\n"
        "bad = [m for m in sys.modules if m.startswith('cryptography') or m in ("
        "'keymgmt.derive', 'keymgmt.drivers.software_secy', 'keymgmt.drivers.software_frames')]\n"
        "print(bad)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == out.stdout.strip()


def test_the_sink_tells_lost_late_and_doubled_apart() -> None:
    sink = Sink()
    for number in (0, 1, 4, 3, 4, 6):
        sink.saw(number)
    assert (5, 2, 1, 1) == (sink.received, sink.lost, sink.reordered, sink.duplicates)


def test_a_frame_of_another_link_is_foreign() -> None:
    one, other = Stream("l1", "a>b", b"C", 128), Stream("l2", "a>b", b"C", 128)
    one.arrived(other.next_frame(), 0)
    one.arrived(one.next_frame(), 0)
    figures = one.to_json()
    assert (1, 1, 128) == (figures["foreign"], figures["received"], len(one.next_frame()))
