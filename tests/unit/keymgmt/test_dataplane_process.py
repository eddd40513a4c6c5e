"""Data planes, relay and traffic over real sockets: rotations under load, restart, repair."""

from __future__ import annotations

import time
from typing import Any

import pytest
from agent_rig import LINK, MS, SocketLink, socket_link

from keymgmt.drivers.software_loop import ask
from keymgmt.drivers.software_ports import boottime_ns
from keymgmt.errors import DriverRefused, DriverUnavailable


def wait_for(check: Any, limit_s: float = 5.0) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail("not reached in time")


def traffic(link: SocketLink) -> dict[str, dict[str, int]]:
    stats: dict[str, dict[str, int]] = ask(link.traffic_config["control"], "stats")["links"][LINK]
    return stats


def wire(link: SocketLink) -> dict[str, dict[str, Any]]:
    stats: dict[str, dict[str, Any]] = ask(link.relay_config["control"], "stats")["links"][LINK]
    return stats


def settled(link: SocketLink) -> dict[str, dict[str, int]]:
    ask(link.traffic_config["control"], "pause")
    time.sleep(0.2)
    return traffic(link)


@pytest.mark.parametrize("cipher", ["GCM-AES-256", "GCM-AES-XPN-256"])
def test_rotations_under_traffic_lose_nothing_and_show_nothing(cipher: str) -> None:
    with socket_link(cipher=cipher) as link:
        keys = [link.rotate(0, "r0")]
        for driver in link.drivers.values():
            driver.permit(boottime_ns() + 30_000 * MS)
        ask(link.traffic_config["control"], "resume")
        for number in range(1, 6):  # the AN wraps from 3 to 0
            time.sleep(0.15)
            keys.append(link.rotate(number % 4, f"r{number}"))
            time.sleep(0.1)
            for end in "ab":
                old = keys[-2][end]
                link.drivers[end].retire_tx((number - 1) % 4, old.tx.key_id)
            for end in "ab":
                link.drivers[end].retire_rx((number - 1) % 4, keys[-2][end].rx.key_id)
        figures = settled(link)
        for way in ("a>b", "b>a"):
            assert figures[way]["sent"] > 100
            assert (0, 0, 0, 0) == tuple(
                figures[way][name] for name in ("lost", "outstanding", "duplicates", "reordered")
            )
            seen = wire(link)[way]
            assert (0, 0) == (seen["clear"], seen["canary_seen"])
            assert ["88e5/EC"] == list(seen["by_type"])
            assert 4 == len(seen["by_an"])
        counters = link.drivers["b"].sample()
        assert (0, 0, 0) == tuple(
            counters[f"rxsc.InPkts{name}"] for name in ("NotValid", "NotUsingSA", "Late")
        )


def test_the_path_closes_by_itself_at_the_end_of_its_arm() -> None:
    with socket_link() as link:
        link.rotate(0, "r0")
        for driver in link.drivers.values():
            driver.permit(boottime_ns() + 300 * MS)
        ask(link.traffic_config["control"], "resume")
        wait_for(lambda: traffic(link)["a>b"]["received"])
        wait_for(lambda: link.drivers["a"].read().path == "closed")
        before = settled(link)["a>b"]["received"]
        ask(link.traffic_config["control"], "resume")
        time.sleep(0.2)
        assert before == traffic(link)["a>b"]["received"]
        counters = link.drivers["a"].sample()
        assert counters["user.TxClosed"] > 0
        assert wait_for(lambda: link.drivers["b"].sample()["probe.Seen"] > 2)  # a closed link proves itself


def test_encryption_off_behind_the_back_shows_in_counters_and_never_on_the_wire() -> None:
    with socket_link(allow_faults=True) as link:
        link.rotate(0, "r0")
        for driver in link.drivers.values():
            driver.permit(boottime_ns() + 10_000 * MS)
        ask(link.traffic_config["control"], "resume")
        wait_for(lambda: traffic(link)["a>b"]["received"])
        link.drivers["a"].fault("encrypt_off")
        wait_for(lambda: link.drivers["a"].guard()["guard.OutDropped"] > 10)
        assert not link.drivers["a"].read().encrypt
        assert ("allowed", "encrypt_off") == link.drivers["a"].read().faults
        link.drivers["a"].fault("clear")
        seen = wire(link)["a>b"]
        assert (0, 0) == (seen["clear"], seen["canary_seen"])
        assert link.drivers["a"].read().encrypt


def test_a_restarted_data_plane_is_another_secy_without_keys() -> None:
    with socket_link() as link:
        link.rotate(0, "r0")
        before = link.drivers["a"].read()
        link.stop_plane("a")
        with pytest.raises(DriverUnavailable):
            link.drivers["a"].read()
        link.start_plane("a")
        after = link.drivers["a"].read()
        assert before.secy_id != after.secy_id
        assert ((), None, "closed") == (after.tx, after.encoding_an, after.path)


def test_a_revert_fires_in_the_data_plane_without_any_client() -> None:
    with socket_link() as link:
        link.rotate(0, "r0")
        keys = link.rotate(1, "r1")
        driver = link.drivers["a"]
        driver.select_tx(0, driver.read().tx[0].key_id, 150)
        assert 0 == driver.read().encoding_an
        driver.close()
        time.sleep(0.3)
        reading = driver.read()
        assert (1, False, keys["a"].tx.key_id) == (
            reading.encoding_an,
            reading.revert_pending,
            reading.key_of_tx(),
        )
        with pytest.raises(DriverRefused):
            driver.confirm(0)


def test_a_cut_direction_is_silence_and_loses_only_that_way() -> None:
    with socket_link() as link:
        link.rotate(0, "r0")
        for driver in link.drivers.values():
            driver.permit(boottime_ns() + 10_000 * MS)
        ask(link.traffic_config["control"], "resume")
        wait_for(lambda: traffic(link)["a>b"]["received"])
        ask(link.relay_config["control"], "cut", link=LINK, directions=["a>b"])
        wait_for(lambda: wire(link)["a>b"]["cut"] > 20)
        ask(link.relay_config["control"], "cut", link=LINK, directions=[])
        time.sleep(0.1)
        figures = settled(link)
        assert figures["a>b"]["lost"] > 10
        assert 0 == figures["b>a"]["lost"]


def test_the_control_socket_is_for_this_user_only() -> None:
    with socket_link(traffic=False) as link:
        mode = (link.folder / "a.sock").stat().st_mode & 0o777
        assert 0o600 == mode
