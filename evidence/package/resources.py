"""Frozen files of a report version: what stands in every package of that version, octet for octet."""

from __future__ import annotations

from importlib.resources import files


def resource(name: str) -> bytes:
    """A file of report version 1: `README.md` (with the script printed in it), or `verify80.py`."""
    # The script is kept as text: its form is bound by its 80 lines, not by the formatter.
    kept = "verify80.py.in" if name == "verify80.py" else name
    data = files("evidence").joinpath("package", "v1", kept).read_bytes()
    if name != "README.md":
        return data
    return data.replace(b"{{verify80.py}}", resource("verify80.py").rstrip())
