"""How the demo speaks: chapters, checked statements, small tables, a bar where something takes time.

Calm on a terminal, plain lines elsewhere (no colour, no cursor movement), the same words in both.
A statement that turns out false is printed as such and remembered: the demo then exits non-zero.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

WIDTH_MAX: Final = 100
INDENT: Final = 3
QUOTE: Final = 7


class StepFailedError(Exception):
    """A step did not do what it says and the story cannot go on."""


class Story:
    """Prints the story and counts what did not hold."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=False)
        if not self.console.is_terminal:
            # Plain, and never cut: paths and commands must survive a pipe.
            self.console = Console(file=self.console.file, highlight=False, no_color=True, width=400)
        elif self.console.width > WIDTH_MAX:
            self.console.width = WIDTH_MAX
        self.width = min(self.console.width, WIDTH_MAX)
        self.started = time.monotonic()
        self.held = 0
        self.failed: list[str] = []

    def title(self, text: str, below: str) -> None:
        """The first lines."""
        self.console.print(Text(text, style="bold"))
        self.console.print(Text(below, style="dim"))

    def chapter(self, number: int, name: str, text: str) -> None:
        """Open one of the six steps, with the seconds since the start."""
        seconds = f"{time.monotonic() - self.started:.0f} s"
        head = f"{number}  {name}"
        gap = " " * max(1, self.width - len(head) - len(seconds))
        self.console.print()
        self.console.print(Text.assemble((head, "bold cyan"), gap, (seconds, "dim")))
        self.say(text, "dim")

    def say(self, text: str, style: str = "") -> None:
        """A sentence that asserts nothing."""
        for line in textwrap.wrap(text, self.width - INDENT) or [""]:
            self.console.print(Text(" " * INDENT + line if line else "", style=style))

    def quote(self, text: str) -> None:
        """What the system itself answered, word for word."""
        for paragraph in text.splitlines():
            for line in textwrap.wrap(paragraph, self.width - QUOTE, break_on_hyphens=False):
                self.console.print(Text(" " * QUOTE + line, style="italic dim"))

    def check(self, holds: bool, text: str, *, detail: str = "", fatal: bool = False) -> bool:
        """Print a statement as held or not.

        Args:
            holds: Whether it does.
            text: The statement, in words that are true when it holds.
            detail: Shown only when it does not hold: what was found instead.
            fatal: Whether the story ends here when it does not.

        Raises:
            StepFailedError: It does not hold and is fatal.
        """
        mark, style = ("✓", "green") if holds else ("✗", "bold red")
        lines = textwrap.wrap(text, self.width - INDENT - 2, break_on_hyphens=False)
        self.console.print(Text.assemble(" " * INDENT, (mark, style), " ", lines[0]))
        for line in lines[1:]:
            self.console.print(Text(" " * (INDENT + 2) + line))
        if not holds and detail:
            for line in textwrap.wrap(f"found: {detail}", self.width - QUOTE)[:6]:
                self.console.print(Text(" " * QUOTE + line, style="red"))
        if holds:
            self.held += 1
            return True
        self.failed.append(text)
        if fatal:
            raise StepFailedError(text)
        return False

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
        """A small table; the first ``words`` columns are words, the rest numbers. Never cut."""
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

        def line(row: Sequence[str]) -> str:
            cells = [
                cell.ljust(width) if i < words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            return (" " * (INDENT + 2) + "  ".join(cells)).rstrip()

        if any(head):
            self.console.print(Text(line(head), style="dim"), no_wrap=True, crop=False)
        for row in rows:
            self.console.print(Text(line(row)), no_wrap=True, crop=False)

    def wait(
        self,
        text: str,
        progress: Callable[[], tuple[int, int]],
        *,
        timeout: float,
        tick: Callable[[], None] | None = None,
        every: float = 0.1,
    ) -> float:
        """Wait until ``progress()`` gives (n, n); a bar shows it on a terminal.

        Args:
            text: What is awaited.
            progress: (done, total) now.
            timeout: Seconds after which the wait fails.
            tick: Called each time around (to notice a dead process early).
            every: Seconds between two looks.

        Returns:
            The seconds it took.

        Raises:
            StepFailedError: It took longer than ``timeout``.
        """
        begun = time.monotonic()
        with _Bar(self.console, text) as update:
            while True:
                done, total = progress()
                update(done, total)
                if done >= total:
                    return time.monotonic() - begun
                if tick is not None:
                    tick()
                if time.monotonic() - begun > timeout:
                    self.check(False, text, detail=f"{done} of {total} after {timeout:.0f} s", fatal=True)
                time.sleep(every)


class _Bar:
    """A transient progress bar on a terminal; nothing elsewhere (the check that follows says it)."""

    def __init__(self, console: Console, text: str) -> None:
        self._progress = Progress(
            TextColumn(" " * (INDENT - 1) + "{task.description}", style="dim"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(text, total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self._progress.start()
        return self._update

    def _update(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
