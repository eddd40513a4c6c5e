"""Errors of the system and of libraries as a sentence for a person: which path, which line, what to do."""

from __future__ import annotations

from typing import Final

_OURS: Final = frozenset({"policy_engine", "keymgmt", "evidence"})
_USE: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "see that the path exists",
    FileExistsError: "a file stands where a folder is needed: name another path, or move it away",
    NotADirectoryError: "a file stands where a folder is needed: name another path, or move it away",
    IsADirectoryError: "a folder stands where a file is needed: name another path",
    PermissionError: "see that you may use the path, or name another one",
}


def shown(text: str) -> str:
    """Text for a terminal: no control characters."""
    return "".join(char if char.isprintable() else "?" for char in text)


def is_ours(error: BaseException) -> bool:
    """Whether we raised it on purpose: its text is for people and it may carry a fix."""
    return type(error).__module__.partition(".")[0] in _OURS


def in_words(error: BaseException) -> tuple[str, str]:
    """(what happened, what to do); of a foreign error its class alone where no more is safe.

    Of those paths, lines and the system's own words are shown. Other texts may quote what must not be shown.
    """
    if is_ours(error):
        return str(error), getattr(error, "fix", "")
    if isinstance(error, OSError) and (error.filename is not None or error.errno):
        named = f"{_text(error.filename)}: " if error.filename is not None else ""
        return shown(f"{named}{error.strerror or type(error).__name__}"), _fix(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = "install the wheel with its extra 'server'"
        return f"this needs {error.name}, which is not installed", fix
    mark = getattr(error, "problem_mark", None)
    if mark is not None:  # every YAML parser's error
        where = f"{mark.name}: line {mark.line + 1}"
        return shown(f"{where}: {getattr(error, 'problem', '') or 'it cannot be parsed'}"), "correct the file"
    return type(error).__name__, ""


def _text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)


def _fix(error: OSError) -> str:
    return next(
        (fix for kind, fix in _USE.items() if isinstance(error, kind)), "free or repair what it names"
    )
