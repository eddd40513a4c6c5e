"""A SecY: what it refuses, what it counts, and that no (key, PN) pair is used twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_rig import CANARY, CIPHER, SCI, USER, MemoryLink, pairs, sa
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.drivers.software_secy import SecY, SecyConfig
from keymgmt.errors import DriverRefused

CIPHERS = ["GCM-AES-128", "GCM-AES-256", "GCM-AES-XPN-128", "GCM-AES-XPN-256"]


def refused(code: str, call: object, *args: object) -> None:
    with pytest.raises(DriverRefused) as no:
        call(*args)  # type: ignore[operator]
    assert code == no.value.code


@pytest.mark.parametrize("cipher", CIPHERS)
def test_frames_pass_encrypted_in_both_directions(cipher: str) -> None:
    link = MemoryLink(cipher)
    link.key()
    link.open()
    link.ends["a"].from_user(USER, link.now)
    link.ends["b"].from_user(USER, link.now)
    frames = link.carry()
    assert [USER] == link.user["a"] == link.user["b"]
    assert all(
        CANARY not in frame and frame[12:14] == b"\x88\xe5" and frame[14] & 0x0C == 0x0C for frame in frames
    )
    counters = link.ends["b"].counters()
    assert (1, 1) == (counters["txsc.OutPktsEncrypted"], counters["rxsa.0.InPktsOK"])
    assert (len(USER) - 12, 0) == (counters["rxsc.InOctetsDecrypted"], counters["rxsc.InOctetsValidated"])


def test_refusals_are_those_of_linux_and_safer_where_linux_is_silent() -> None:
    link = MemoryLink()
    keys, other = link.install()["a"], pairs("r2", 0)["a"]
    secy = link.ends["a"].secy
    refused("EBUSY", secy.add_tx, sa(other.tx, 0, SCI["a"]))
    refused("EBUSY", secy.add_rx, sa(other.rx, 0, SCI["b"]))
    refused("ENODEV", secy.add_rx, sa(other.rx, 1, "02000000000f0001"))
    refused("EINVAL", secy.add_tx, replace(sa(other.tx, 1, SCI["a"]), sak=bytes(16)))
    refused("EINVAL", secy.add_tx, replace(sa(other.tx, 1, SCI["a"]), cipher="GCM-AES-256"))
    refused("EINVAL", secy.add_tx, sa(other.tx, 4, SCI["a"]))
    refused("ENOENT", secy.select, 1, other.tx.key_id)
    refused("ENOENT", secy.select, 0, other.tx.key_id)
    secy.select(0, keys.tx.key_id)
    refused("EBUSY", secy.delete_tx, 0, keys.tx.key_id)
    refused("ENOENT", secy.delete_rx, 0, other.rx.key_id)


def test_two_sa_hardware_has_two_association_numbers() -> None:
    secy = SecY(SecyConfig(SCI["a"], SCI["b"], CIPHER, max_sa_per_sc=2))
    secy.add_tx(sa(pairs(an=1)["a"].tx, 1, SCI["a"]))
    refused("EINVAL", secy.add_tx, sa(pairs(an=2)["a"].tx, 2, SCI["a"]))


def test_own_sci_as_receive_channel_is_refused() -> None:
    refused("EINVAL", SecY, SecyConfig(SCI["a"], SCI["a"], CIPHER))


def test_a_key_is_never_installed_twice_in_one_secy_lifetime() -> None:
    link = MemoryLink()
    keys = link.install()["a"]
    secy = link.ends["a"].secy
    secy.delete_tx(0, keys.tx.key_id)
    secy.delete_rx(0, keys.rx.key_id)
    refused("EEXIST", secy.add_tx, sa(keys.tx, 0, SCI["a"]))
    refused("EEXIST", secy.add_rx, sa(keys.rx, 1, SCI["b"]))


def test_a_late_retire_of_an_old_generation_leaves_the_new_sa() -> None:
    link = MemoryLink()
    old = link.install()["a"]
    secy = link.ends["a"].secy
    secy.delete_rx(0, old.rx.key_id)
    new = pairs("r2", 0)["a"]
    secy.add_rx(sa(new.rx, 0, SCI["b"]))
    refused("ENOENT", secy.delete_rx, 0, old.rx.key_id)
    assert new.rx.key_id == secy.rx[0].key_id


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_spent_packet_number_stops_transmit_and_is_never_reused(cipher: str) -> None:
    link = MemoryLink(cipher)
    link.key()
    secy = link.ends["a"].secy
    end = 2**64 if "XPN" in cipher else 2**32
    secy.tx[0].next_pn = end - 1
    assert secy.send(USER) is not None
    assert secy.send(USER) is None
    assert (end, 1) == (secy.tx[0].next_pn, secy.counters()["port.TxDropped"])


def test_without_a_selected_key_nothing_leaves() -> None:
    link = MemoryLink()
    link.install()
    assert link.ends["a"].secy.send(USER) is None
    assert 1 == link.ends["a"].counters()["port.TxDropped"]


def one(link: MemoryLink) -> bytes:
    frame = link.ends["a"].secy.send(USER)
    assert frame is not None
    return frame


def test_arrivals_are_counted_by_their_linux_name() -> None:
    link = MemoryLink(window=0)
    keys = link.key()
    b = link.ends["b"].secy
    first, second = one(link), one(link)
    assert USER == b.receive(second)
    b.receive(first)  # below the lowest acceptable PN
    b.receive(second)  # replayed
    b.receive(one(link)[:-1] + b"\x00\x00")
    b.receive(USER)
    b.receive(first[:20] + bytes(8) + first[28:])
    b.receive(first[:14] + bytes([first[14] | 0x80]) + first[15:])
    b.delete_rx(0, keys["b"].rx.key_id)
    b.receive(one(link))
    counters = b.counters()
    expected = {
        "rxsc.InPktsOK": 1,
        "rxsc.InPktsLate": 2,
        "rxsc.InPktsNotValid": 1,
        "secy.InPktsNoTag": 1,
        "secy.InPktsNoSCI": 1,
        "secy.InPktsBadTag": 1,
        "rxsc.InPktsNotUsingSA": 1,
    }
    assert expected == {name: counters[name] for name in expected}


def test_the_wrong_key_under_a_right_an_is_not_valid() -> None:
    link = MemoryLink()
    keys = link.key()
    a = link.ends["a"].secy
    wrong = replace(sa(pairs("r2", 1)["a"].tx, 1, SCI["a"]))
    a.add_tx(wrong)
    link.ends["b"].secy.add_rx(sa(pairs("r3", 1)["b"].rx, 1, SCI["a"]))
    a.select(1, wrong.key_id)
    assert link.ends["b"].secy.receive(one(link)) is None
    assert 1 == link.ends["b"].counters()["rxsa.1.InPktsNotValid"]
    a.select(0, keys["a"].tx.key_id)  # rollback: the old PN goes on
    assert USER == link.ends["b"].secy.receive(one(link))


def test_integrity_only_frames_move_validated_octets_not_decrypted_ones() -> None:
    link = MemoryLink()
    link.key()
    link.ends["a"].secy.encrypt = False
    frame = one(link)
    assert CANARY in frame
    assert USER == link.ends["b"].secy.receive(frame)
    counters = link.ends["b"].counters()
    assert (0, len(USER) - 12) == (counters["rxsc.InOctetsDecrypted"], counters["rxsc.InOctetsValidated"])
    assert 1 == link.ends["a"].counters()["txsc.OutPktsProtected"]


STEPS = st.lists(st.sampled_from(["send", "install", "select", "back", "delete", "restart"]), max_size=60)


@given(STEPS, st.sampled_from(["GCM-AES-256", CIPHER]))
def test_no_key_and_packet_number_is_ever_used_twice(steps: list[str], cipher: str) -> None:
    """Any order of what a conductor may ask for: the pairs (key id, PN) that were used are all different."""
    config = SecyConfig(SCI["a"], SCI["b"], cipher)
    secy, used, serial = SecY(config), [], 0
    known: list[tuple[int, object]] = []
    for step in steps:
        try:
            if step == "install":
                serial += 1
                an = serial % 4
                key = pairs(f"r{serial}", an, cipher, key=bytes(32))["a"].tx
                known.append((an, key))
                secy.add_tx(sa(key, an, SCI["a"], cipher))
            elif step == "select" and known:
                secy.select(known[-1][0], known[-1][1].key_id)  # type: ignore[attr-defined]
            elif step == "back" and known:
                an, old = known[0]
                secy.add_tx(sa(old, an, SCI["a"], cipher))  # type: ignore[arg-type]
            elif step == "delete" and known:
                secy.delete_tx(known[0][0], known[0][1].key_id)  # type: ignore[attr-defined]
            elif step == "restart":
                secy, known = SecY(config), []
            elif step == "send":
                sa_in_use = secy.tx.get(secy.encoding_an) if secy.encoding_an is not None else None
                if sa_in_use is not None:
                    used.append((sa_in_use.key_id, sa_in_use.next_pn))
                    secy.send(USER)
        except DriverRefused:
            continue
    assert len(used) == len(set(used))


def test_repr_of_an_install_shows_no_key() -> None:
    install = sa(pairs()["a"].tx, 0, SCI["a"])
    assert install.sak.hex() not in repr(install)
    assert repr(install.sak) not in repr(install)
    assert repr(install.salt) not in repr(install)
