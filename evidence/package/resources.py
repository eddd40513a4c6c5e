"""Frozen files of a report version: what stands in every package of that version, octet for octet."""

from __future__ import annotations

from importlib.resources import files

#: SHA-256 of README and script in packages of report version 1 that an earlier release made.
EARLIER = frozenset(
    {
        (
            "2f7adc0ae6569a647731456116f39d502ffa6fd9aea9e76d350f26a8bf0998cd",
            "f667101c1327ce4fc694b5cea3c4e08bba0b5c76a15cf4e332e0c55f5a6746c8",
        )
    }
)


def resource(name: str) -> bytes:
    """A file of report version 1: `README.md` (with the script printed in it), or `verify80.py`."""
    # The script is kept as text: its form is bound by its 80 lines, not by the formatter.
    kept = "verify80.py.in" if name == "verify80.py" else name
    data = files("evidence").joinpath("package", "v1", kept).read_bytes()
    if name != "README.md":
        return data
    return data.replace(b"{{verify80.py}}", resource("verify80.py").rstrip())
