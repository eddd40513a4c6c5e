"""How the demo speaks: chapters, checked statements, small tables, a bar where something takes time.

Calm on a terminal, plain lines elsewhere (no colour, no cursor movement), the same words in both.
A statement that turns out false is printed as such and remembered: the demo then exits non-zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

WIDTH_MAX: Final = 100
INDENT: Final = 3


class StepFailedError(Exception):
    """A step did not do what it says and the story cannot go on."""


class Story:
    """Prints the story and counts what did not hold."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=False)
        if not self.console.is_terminal:
            self.console = Console(file=self.console.file, highlight=False, no_color=True, width=WIDTH_MAX)
        elif self.console.width > WIDTH_MAX:
            self.console.width = WIDTH_MAX
        self.started = time.monotonic()
        self.held = 0
        self.failed: list[str] = []

    def title(self, text: str, below: str) -> None:
        """The first lines."""
        self.console.print(Text(text, style="bold"))
        self.console.print(Text(below, style="dim"))

    def chapter(self, number: int, name: str, text: str) -> None:
        """Open one of the six steps, with the seconds since the start."""
        seconds = time.monotonic() - self.started
        self.console.print()
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(Text(f"{number}  {name}", style="bold cyan"), Text(f"{seconds:.0f} s", style="dim"))
        self.console.print(head)
        self._indented(Text(text, style="dim"))

    def say(self, text: str, style: str = "") -> None:
        """A sentence that asserts nothing."""
        self._indented(Text(text, style=style))

    def quote(self, text: str) -> None:
        """What the system itself answered, word for word."""
        for line in text.splitlines():
            self.console.print(Padding(Text(line, style="italic"), (0, 0, 0, INDENT + 4)))

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
        line = Text.assemble((mark, style), " ", text)
        if not holds and detail:
            line.append(f"  (found: {detail})", style="red")
        self._indented(line, hanging=2)
        if holds:
            self.held += 1
            return True
        self.failed.append(text)
        if fatal:
            raise StepFailedError(text)
        return False

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """A small table; the first ``left`` columns are words, the rest numbers."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for index, name in enumerate(head):
            table.add_column(name, justify="left" if index < left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        self.console.print(Padding(table, (0, 0, 0, INDENT)))

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
        with self._bar(text) as (update, _):
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

    def _bar(self, text: str) -> _Bar:
        return _Bar(self.console, text)

    def _indented(self, text: Text, hanging: int = 0) -> None:
        del hanging
        self.console.print(Padding(text, (0, 0, 0, INDENT)))


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

    def __enter__(self) -> tuple[Callable[[int, int], None], Progress]:
        self._progress.start()
        return self._update, self._progress

    def _update(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
