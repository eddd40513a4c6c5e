"""The command: exit codes, what it imports, no traceback whatever it is given."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_world import LOGS, T0, World, make, signer
from typer.testing import CliRunner

from evidence import cli
from evidence.checkpoint import verifier_of
from evidence.database import Database
from evidence.ledger import Ledger
from evidence.package.attacks import flip
from evidence.sequencer import Sequencer

RUN = CliRunner()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = make(tmp_path_factory.mktemp("cli"), logs=False)
    made.export()
    yield made
    made.db.stop()


@pytest.fixture
def package(world: World) -> str:
    return str(world.folder / "acme.zip")


@pytest.fixture
def trust(world: World) -> str:
    return str(world.folder / "acme.zip.trust.json")


def test_exit_codes_say_what_was_established(package: str, trust: str, world: World) -> None:
    import json

    told = json.loads(Path(trust).read_text())
    key, ident = told["fingerprints"][0], told["scopes"]["acme"]
    assert 0 == RUN.invoke(cli.app, ["verify", package, "--trust", trust]).exit_code
    assert 3 == RUN.invoke(cli.app, ["verify", package]).exit_code
    assert 4 == RUN.invoke(cli.app, ["verify", package, "--key", key]).exit_code
    assert 0 == RUN.invoke(cli.app, ["verify", package, "--key", key, "--scope", f"acme={ident}"]).exit_code
    assert 1 == RUN.invoke(cli.app, ["verify", package, "--key", "ab" * 32]).exit_code
    for wrong in (
        ["--scope", "x=y"],
        ["--trust", trust, "--key", key],
        ["--key", key, "--scope", "x"],
        ["--nope"],
        ["--key", "zz"],
        ["--key", key, "--scope", "acme=zz"],
        ["--trust", package],
    ):
        assert 2 == RUN.invoke(cli.app, ["verify", package, *wrong]).exit_code
    assert 2 == RUN.invoke(cli.app, ["verify", "absent.zip"]).exit_code


def test_a_flipped_byte_is_named_and_gives_1(package: str, trust: str, tmp_path: Path) -> None:
    octets = Path(package).read_bytes()
    evil = tmp_path / "evil.zip"
    evil.write_bytes(flip(octets, len(octets) * 4))
    done = RUN.invoke(cli.app, ["verify", str(evil), "--trust", trust])
    assert (1, True) == (done.exit_code, done.stderr.startswith("NOT VERIFIED: step 2: "))


@pytest.mark.parametrize("junk", [b"", b"PK\x03\x04", os.urandom(2000), b"%PDF-1.4"])
def test_junk_gives_a_line_and_no_traceback(junk: bytes, trust: str, tmp_path: Path) -> None:
    path = tmp_path / "junk.zip"
    path.write_bytes(junk)
    for code, command in (
        (1, ["verify", str(path), "--trust", trust]),
        (1, ["show", str(path)]),
        (2, ["verify", str(path), "--trust", str(path)]),
    ):
        done = RUN.invoke(cli.app, command)
        assert code == done.exit_code
        assert isinstance(done.exception, SystemExit)
        assert 1 <= len(done.stderr.splitlines()) <= 2


def test_show_says_that_it_verifies_nothing(package: str, tmp_path: Path) -> None:
    done = RUN.invoke(cli.app, ["show", package, "--extract", str(tmp_path / "out")])
    assert (0, True) == (done.exit_code, done.output.startswith("NOT VERIFIED"))
    assert (tmp_path / "out" / "tables" / "decisions.csv").is_file()
    assert 1 == RUN.invoke(cli.app, ["show", package, "--extract", str(tmp_path / "out")]).exit_code


def test_each_refusal_says_what_to_do(package: str, trust: str, tmp_path: Path) -> None:
    octets = Path(package).read_bytes()
    (tmp_path / "half.zip").write_bytes(octets[: len(octets) // 2])
    (tmp_path / "page.zip").write_bytes(b"<html>")
    (tmp_path / "empty.zip").write_bytes(b"")
    (tmp_path / "there").mkdir()
    for command, told in (
        (["verify", str(tmp_path / "half.zip"), "--trust", trust], "fetch the file again"),
        (["verify", str(tmp_path / "page.zip"), "--trust", trust], "no evidence package"),
        (["verify", str(tmp_path / "empty.zip"), "--trust", trust], "not empty"),
        (["show", str(tmp_path / "half.zip")], "fetch the file again"),
        (["show", package, "--extract", str(tmp_path / "there")], "name a new folder"),
        (["show", package, "--extract", "/proc/x"], "may write"),
        (["show", package, "--extract", str(tmp_path / "no" / "x")], "there is no folder"),
    ):
        done = RUN.invoke(cli.app, command)
        assert (1, True) == (done.exit_code, told in done.stderr), (command, done.stderr)
        assert "\x1b" not in done.stderr
    done = RUN.invoke(cli.app, ["verify", package, "--trust", package])
    assert (2, True) == (done.exit_code, "handed over" in done.stderr)
    assert "--trust" in RUN.invoke(cli.app, ["verify", package]).stdout.splitlines()[-1]
    for directory in (["verify", str(tmp_path)], ["import", "--s3", package, "--tenants", str(tmp_path)]):
        assert 2 == RUN.invoke(cli.app, directory).exit_code


def test_no_control_character_of_a_package_reaches_the_terminal(package: str, tmp_path: Path) -> None:
    import json

    from evidence.canonical import canonical
    from evidence.package.attacks import pack, unpack

    members = unpack(Path(package).read_bytes())
    value = json.loads(members["figures.json"])
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    value["scope"] = value["labels"][0] = value["window"][0] = evil
    value["findings"] = [evil]
    (tmp_path / "evil.zip").write_bytes(pack(members | {"figures.json": canonical(value)}))
    for more in ([], ["--json"]):
        out = RUN.invoke(cli.app, ["show", str(tmp_path / "evil.zip"), *more]).stdout
        assert not [ch for ch in out if not ch.isprintable() and ch != "\n"]


def test_an_import_that_was_killed_midway_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the first file: the second is imported, and the accesses are laid to jobs."""
    db = Database(tmp_path / "sluicegate.db")
    db.start()
    db.create_all()
    Ledger.open(db, "o")
    db.stop()
    names = {"s3": "s3-access.log", "sacct": "sacct.txt", "tenants": "tenants.json", "leases": "leases.csv"}
    logs = [f"--{k}={LOGS / f}" for k, f in names.items()]
    state = ["--state", str(tmp_path)]
    assert 0 == RUN.invoke(cli.app, ["import", logs[0], logs[2], *state]).exit_code
    done = RUN.invoke(cli.app, ["import", *logs, *state])
    assert 0 == done.exit_code, done.stderr
    assert ("imported before, not again" in done.stdout, "acme: 7 direct" in done.stdout) == (True, True), (
        done.stdout
    )


@pytest.fixture
def state(tmp_path: Path) -> list[str]:
    db = Database(tmp_path / "sluicegate.db")
    db.start()
    db.create_all()
    Ledger.open(db, "o")
    db.stop()
    return ["--state", str(tmp_path)]


def test_an_import_says_whose_the_rows_are(state: list[str]) -> None:
    """Rows are filed once and for good: no tenants must be said, not forgotten."""
    log, table = ["--s3", str(LOGS / "s3-access.log")], ["--tenants", str(LOGS / "tenants.json")]
    for wrong in ([*log], [*log, *table, "--no-tenants"], ["--sacct", str(LOGS / "sacct.txt")]):
        done = RUN.invoke(cli.app, ["import", *wrong, *state])
        assert (2, True) == (done.exit_code, "--no-tenants" in done.stderr)
    done = RUN.invoke(cli.app, ["import", *log, *table, *state])
    assert (0, True) == (done.exit_code, "of no declared tenant 1: filed under estate" in done.stdout)


def test_an_import_without_tenants_goes_to_the_estate(state: list[str]) -> None:
    done = RUN.invoke(cli.app, ["import", "--s3", str(LOGS / "s3-access.log"), "--no-tenants", *state])
    assert (0, True) == (done.exit_code, "estate: " in done.stdout), done.stderr


def test_a_wrong_file_has_its_own_exit_code_and_what_came_before_stands(
    state: list[str], tmp_path: Path
) -> None:
    junk = tmp_path / "junk.gz"
    junk.write_bytes(b"\x1f\x8b\x08junk")
    logs = ["--s3", str(LOGS / "s3-access.log"), "--tenants", str(LOGS / "tenants.json")]
    done = RUN.invoke(cli.app, ["import", *logs, "--s3", str(junk), *state])
    assert (5, True, True) == (
        done.exit_code,
        "NOT IMPORTED: junk.gz: none of 1 lines" in done.stderr,
        "s3-access.log: 24 lines, 22 rows" in done.stdout,
    )
    done = RUN.invoke(cli.app, ["import", *logs, *state])
    assert (0, True) == (done.exit_code, "acme: " in done.stdout), done.stderr


def test_import_and_export_work_on_a_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = Database(tmp_path / "sluicegate.db")
    db.start()
    db.create_all()
    ledger = Ledger.open(db, "o")
    state = ["--state", str(tmp_path)]
    logs = [
        f"--{k}={LOGS / f}"
        for k, f in (
            ("s3", "s3-access.log"),
            ("sacct", "sacct.txt"),
            ("tenants", "tenants.json"),
            ("leases", "leases.csv"),
        )
    ]
    done = RUN.invoke(cli.app, ["import", *logs, *state])
    assert (0, True) == (done.exit_code, "24 lines, 22 rows, 1 repeated, 1 quarantined" in done.output), (
        done.output
    )
    again = RUN.invoke(cli.app, ["import", *logs, *state])
    assert (1, True) == (again.exit_code, "imported before" in again.stderr)
    Sequencer(db, ledger, clock=lambda: T0).tick_sync(T0, signer())
    db.stop()
    window = [
        "--scope",
        "acme",
        "--from",
        "2025-03-03T00:00:00Z",
        "--to",
        "2025-03-04T00:00:00Z",
        "--out",
        str(tmp_path / "a.zip"),
    ]
    with monkeypatch.context() as nobody:
        nobody.setattr(cli, "SIGNER_ENTRY_POINTS", "sluicegate.nobody")
        refused = RUN.invoke(cli.app, ["export", *window, *state])
    assert (1, True) == (refused.exit_code, "no signer" in refused.stderr)
    monkeypatch.setattr(cli, "_signer", lambda _state: signer())
    done = RUN.invoke(cli.app, ["export", *window, *state])
    assert 0 == done.exit_code, done.stderr
    digest = hashlib.sha256((tmp_path / "a.zip").read_bytes()).hexdigest()  # for another channel
    assert f"sha256       {digest}\n" in done.stdout
    assert f"signed by    {verifier_of(signer()).fingerprint}\n" in done.stdout
    db.start()
    Sequencer(db, ledger, clock=lambda: T0).drain_sync()  # the export is itself a record
    (told,) = ledger.records(ledger.read(lambda view: view.find_scope("acme")), kind="package_export")
    assert (digest, ["acme"]) == tuple(told.parts.public_fields()[n] for n in ("package_sha256", "scopes"))
    db.stop()
    assert (
        0
        == RUN.invoke(
            cli.app, ["verify", str(tmp_path / "a.zip"), "--trust", str(tmp_path / "a.zip.trust.json")]
        ).exit_code
    )
    before = (tmp_path / "a.zip").read_bytes()
    again = RUN.invoke(cli.app, ["export", *window, *state])
    assert (1, True) == (again.exit_code, "a.zip is there already" in again.stderr)
    assert before == (tmp_path / "a.zip").read_bytes()
    assert 0 == RUN.invoke(cli.app, ["export", *window, "--force", *state]).exit_code
    (tmp_path / "a.zip").unlink()  # the trust file alone is not replaced either
    again = RUN.invoke(cli.app, ["export", *window, *state])
    assert (1, True) == (again.exit_code, "a.zip.trust.json is there already" in again.stderr)
    lost = RUN.invoke(cli.app, ["export", *window[:-1], str(tmp_path / "no" / "a.zip"), *state])
    assert (1, True, False) == (lost.exit_code, "no folder no" in lost.stderr, (tmp_path / "no").exists())
    folder = RUN.invoke(cli.app, ["export", *window[:-1], str(tmp_path), "--force", *state])
    assert 1 == folder.exit_code
    bad = [*window[:2], "--from", "2025-03-03", *window[4:]]
    assert 2 == RUN.invoke(cli.app, ["export", *bad, *state]).exit_code
    nobody = ["--scope", "nobody", *window[2:-1], str(tmp_path / "b.zip")]
    done = RUN.invoke(cli.app, ["export", *nobody, *state])
    assert (1, True) == (done.exit_code, "nobody" in done.stderr), done.stderr
    assert 1 == RUN.invoke(cli.app, ["import", *logs, "--state", str(tmp_path / "none")]).exit_code


def test_an_export_while_nothing_runs_says_so_and_what_to_do(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signer's errors are of a higher package: they are told by their `fix`; others by class alone."""

    class StartError(Exception):
        fix = "start it with `sluicegate up`"

    def nobody(_state: Path) -> object:
        raise StartError("nothing runs here")

    def broken(_state: Path) -> object:
        raise RuntimeError("content")

    shutil.copyfile(world.folder / "ledger.db", tmp_path / "sluicegate.db")
    window = ["--from", "2025-03-03T00:00:00Z", "--to", "2025-03-04T00:00:00Z"]
    command = [
        "export", "--scope", "acme", *window, "--out", str(tmp_path / "a.zip"), "--state", str(tmp_path),
    ]  # fmt: skip
    monkeypatch.setattr(cli, "_signer", nobody)
    done = RUN.invoke(cli.app, command)
    assert (1, "NOT EXPORTED: nothing runs here\n  start it with `sluicegate up`\n") == (
        done.exit_code,
        done.stderr,
    )
    monkeypatch.setattr(cli, "_signer", broken)
    done = RUN.invoke(cli.app, command)
    assert (1, "NOT EXPORTED: could not be read to the end (RuntimeError)\n") == (done.exit_code, done.stderr)
    assert "sluicegate up" in RUN.invoke(cli.app, ["export", "--help"]).stdout


ALLOWED = """
    import sys
    tried = []
    # duckdb, cryptography, orjson, typer, structlog, and what these themselves need.
    allowed = {"evidence", "duckdb", "_duckdb", "cryptography", "_cffi_backend", "cffi", "orjson", "typer", "structlog",
        "click", "rich", "pygments", "markdown_it", "mdurl", "shellingham", "typing_extensions", "annotated_doc",
        "pydantic", "pydantic_core", "annotated_types", "typing_inspection"} | set(sys.stdlib_module_names)

    class OnlyThese:
        def find_spec(self, name, path=None, target=None):
            top = name.partition(".")[0]
            if top not in allowed and not top.startswith("_"):
                tried.append(top)
                raise ModuleNotFoundError(f"not installed here: {name}", name=name)

    import socket
    class NoSocket:
        def __init__(self, *a, **k):
            raise AssertionError("a socket was opened")
    socket.socket = NoSocket
    sys.meta_path.insert(0, OnlyThese())
    from evidence.cli import app
    try:
        app(["verify", sys.argv[1], "--trust", sys.argv[2]])
    except SystemExit as done:
        heavy = {"fastapi", "hvac", "sqlmodel", "sqlalchemy", "ibis", "pandas", "numpy", "pyarrow", "reportlab"}
        print("loaded", sorted(heavy & set(sys.modules)))
        print("exit", done.code)
"""


def test_verify_needs_only_the_verify_extra(package: str, trust: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(ALLOWED), package, trust]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "loaded []\nexit 0" in done.stdout, done.stdout
    assert "report.pdf: rendering, not verified" in done.stdout
