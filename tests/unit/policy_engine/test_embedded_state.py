"""Embedded mode's pure and small parts: the folder and its lock, wiring, mapping of declared state."""

import os
import socket
import stat
from pathlib import Path

import pytest

from policy_engine.embedded.begin import example_estate
from policy_engine.embedded.estate import bare_links, keyed_links
from policy_engine.embedded.schema import newest, stands_at
from policy_engine.embedded.state import SOCKET_FOLDER_MAX, StateFolder, UpLock, holder
from policy_engine.embedded.wiring import load_or_make
from policy_engine.errors import StateFolderBusyError
from policy_engine.resources.load import load


@pytest.fixture
def estate():
    return load(example_estate())


def test_a_second_lock_is_refused_and_names_the_holder(tmp_path):
    state = StateFolder.prepare(tmp_path / "s")
    first = UpLock(state)
    first.acquire()
    assert os.getpid() == holder(state)
    with pytest.raises(StateFolderBusyError, match=rf"pid {os.getpid()}") as caught:
        UpLock(state).acquire()
    assert "kill" in caught.value.fix
    first.release()
    assert holder(state) is None
    UpLock(state).acquire()


def test_folders_are_private(tmp_path):
    state = StateFolder.prepare(tmp_path / "s")
    (state.root / "spool").chmod(0o755)
    state.database.chmod(0o644)
    StateFolder.prepare(tmp_path / "s")
    for path in (state.root, *state.root.iterdir()):
        assert (0o600 if path == state.database else 0o700) == stat.S_IMODE(path.stat().st_mode), path


@pytest.mark.parametrize("deep", [False, True])
def test_sockets_fit_in_sun_path_however_deep_the_folder(tmp_path, deep):
    root = tmp_path / ("x" * 120) if deep else tmp_path
    state = StateFolder.prepare(root)
    folder = state.sockets()
    assert len(os.fsencode(folder)) <= SOCKET_FOLDER_MAX
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / ("a" * 40)))
    (folder / ("a" * 40)).unlink()
    assert folder == StateFolder(state.root).sockets()
    state.clear_short_sockets()
    assert (not folder.exists()) or folder == state.root / "run"


def test_a_short_folder_of_somebody_else_is_refused(tmp_path):
    state = StateFolder.prepare(tmp_path / ("y" * 120))
    folder = state.sockets()
    folder.chmod(0o755)
    with pytest.raises(StateFolderBusyError):
        state.sockets()
    folder.chmod(0o700)
    folder.rmdir()


def test_links_of_the_example_estate_are_mapped_with_their_timers(estate):
    links = keyed_links(estate)
    assert ["cw-aws-1", "cw-gcp-1", "gcp-aws-1"] == sorted(links)
    assert {"gcp-aws-legacy": "none"} == bare_links(estate)
    profile = links["cw-gcp-1"].profile
    declared = estate.profiles["fabric-100g"]
    assert (declared.ttl_ns, declared.arm_ns, declared.max_hold_ns, declared.cipher_suite) == (
        profile.ttl_ns,
        profile.arm_ns,
        profile.max_hold_ns,
        profile.cipher,
    )


def test_wiring_joins_neighbours_and_is_kept(estate, tmp_path):
    links = keyed_links(estate)
    wiring = load_or_make(tmp_path / "w.json", tmp_path, sorted(links))
    assert wiring == load_or_make(tmp_path / "w.json", tmp_path, sorted(links))
    relay = {link["name"]: link for link in wiring.relay(sorted(links))["links"]}
    traffic = {link["name"]: link for link in wiring.traffic(sorted(links), sending=True, fps=9)["links"]}
    ports = set()
    for name, spec in links.items():
        for side in "ab":
            plane = wiring.data_plane(spec, side, allow_faults=False)
            for mine, theirs in (("wire", relay), ("controlled", traffic)):
                other = theirs[name][side]
                assert (plane[mine]["bind"], plane[mine]["peer"]) == (other["peer"], other["bind"])
                ports |= {plane[mine]["bind"][1], other["bind"][1]}
    assert 8 * len(links) == len(ports)
    more = load_or_make(tmp_path / "w.json", tmp_path, [*links, "new"])
    assert (wiring.canary, wiring.ports["cw-gcp-1"]) == (more.canary, more.ports["cw-gcp-1"])


def test_the_newest_revision_is_the_head_that_alembic_knows(tmp_path):
    from policy_engine import migrations

    assert migrations.head() == newest()
    assert stands_at(tmp_path / "none.db") is None
    migrations.upgrade(f"sqlite:///{tmp_path / 'm.db'}")
    assert newest() == stands_at(tmp_path / "m.db")


def test_the_example_estate_stands_where_wheel_and_source_have_it():
    assert Path(example_estate()).is_dir()
