"""What agents were last heard to say: samples, violations, presence. In memory, of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from evidence.logs import get_logger
from keymgmt.counters import Violation
from keymgmt.limits import Limits
from keymgmt.samples import Sample

log = get_logger("keymgmt.observed")


@dataclass(frozen=True, slots=True)
class ViolationReport:
    """A violation that an agent confirmed and reported."""

    link: str
    endpoint: str
    agent: str
    violation: Violation
    received_ns: int


class Observed:
    """The newest of everything, and two callbacks that may not raise into the stream."""

    def __init__(
        self,
        limits: Limits,
        *,
        on_sample: Callable[[Sample], None] | None = None,
        on_violation: Callable[[ViolationReport], None] | None = None,
    ) -> None:
        self._limits = limits
        self.on_sample = on_sample
        self.on_violation = on_violation
        self.seen: dict[str, int] = {}
        self.boots: dict[str, str] = {}
        self.samples: dict[tuple[str, str], Sample] = {}
        self.reports: dict[tuple[str, str], deque[ViolationReport]] = {}

    def poll(self, agent: str, boot_id: str, now_ns: int) -> None:
        """An agent polled."""
        self.seen[agent] = now_ns
        self.boots[agent] = boot_id

    def sample(self, sample: Sample) -> None:
        """Keep a verified sample unless a newer one of the same agent stands; order is by its sequence."""
        key = (sample.link, sample.endpoint)
        kept = self.samples.get(key)
        if kept is not None and kept.agent == sample.agent and sample.seq <= kept.seq:
            return
        self.samples[key] = sample
        _tell(self.on_sample, sample)

    def violation(self, report: ViolationReport) -> None:
        """Keep a report; the oldest make room."""
        key = (report.link, report.endpoint)
        kept = self.reports.setdefault(key, deque(maxlen=self._limits.violations_kept))
        kept.append(report)
        _tell(self.on_violation, report)


T = TypeVar("T")


def _tell(callback: Callable[[T], None] | None, what: T) -> None:
    if callback is None:
        return
    try:
        callback(what)
    except Exception as error:
        # The stream must go on; the text could quote what an agent sent.
        log.error("callback_failed", error=type(error).__name__)  # noqa: TRY400
