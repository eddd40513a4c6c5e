"""Sends standard error, and with it every log line and traceback, to a file of the state folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def log_to(logs: Path, component: str, level: str = "info") -> None:
    """Log to ``logs/COMPONENT.log`` from now on; nothing of it reaches the terminal."""
    from evidence.logs import configure

    path = logs / f"{component}.log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    sys.stderr.flush()
    os.dup2(fd, 2)
    os.close(fd)
    configure(component, level)
