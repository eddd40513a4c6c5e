"""Peak memory of a process tree: the sum of PSS (shared pages counted once), sampled each second.

RSS counts what forked processes share once *each*; PSS (``/proc/PID/smaps_rollup``) divides it, so
the sum is what the tree really takes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path


def parents() -> dict[int, int]:
    """Map pid to parent pid, for every process that can be read."""
    found: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        found[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def tree(roots: Iterable[int]) -> set[int]:
    """The roots and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    todo, seen = list(roots), set[int]()
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            todo.extend(children.get(pid, ()))
    return seen


def pss_kib(pid: int) -> int:
    """PSS of one process in KiB, 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


class PeakMemory:
    """Samples the tree below some roots each second in a thread."""

    def __init__(self, roots: Iterable[int], every: float = 1.0) -> None:
        self.roots = set(roots)
        self.peak_mib = 0
        self.peak_processes = 0
        self.samples = 0
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample and end; nothing when it never began."""
        if self._thread.ident is None:
            return
        self._stop.set()
        self._thread.join()
        self.sample()

    def sample(self) -> int:
        """Sum of PSS in MiB now."""
        pids = tree(self.roots)
        total = sum(pss_kib(pid) for pid in pids) // 1024
        self.samples += 1
        if total > self.peak_mib:
            self.peak_mib, self.peak_processes = total, len(pids)
        return total

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.sample()
