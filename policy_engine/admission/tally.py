"""Counting without IO: metrics of the webhook, and refusals that have no record of their own.

Labels are bounded: declared clusters, four operations, fixed words. Refusals for overload, an unwritable
spool or lateness are not answered decisions; they are counted here and become one `decision_summary` record
as soon as the spool takes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from policy_engine.limits import LIMITS

_BOUNDS_US: Final = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 512_000, 2_000_000)


@dataclass(slots=True)
class Unrecorded:
    """Refusals since the last summary: how many by (cluster, reason), when, and which came too late."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_ns: int = 0
    last_ns: int = 0
    late: list[str] = field(default_factory=list)

    def add(self, cluster: str, reason: str, now_ns: int, late_id: str = "") -> None:
        """Count one refusal; `late_id` is that of a decision whose record may yet become durable."""
        if not self.counts:
            self.first_ns = now_ns
        self.counts[cluster, reason] += 1
        self.last_ns = now_ns
        if late_id and len(self.late) < LIMITS.summary_ids:
            self.late.append(late_id)

    def merge(self, other: Unrecorded) -> None:
        """Take another's counts back (its summary could not be written)."""
        if not other.counts:
            return
        self.first_ns = other.first_ns
        self.last_ns = max(self.last_ns, other.last_ns)
        self.counts.update(other.counts)
        self.late = (other.late + self.late)[: LIMITS.summary_ids]

    def public(self) -> dict[str, Any]:
        """The public body of a `decision_summary` record."""
        counts = [
            {"cluster": cluster, "count": count, "reason": reason}
            for (cluster, reason), count in sorted(self.counts.items())
        ]
        body: dict[str, Any] = {"counts": counts, "first": str(self.first_ns), "last": str(self.last_ns)}
        return {**body, "late": self.late} if self.late else body


class AdmissionMetrics(Collector):
    """Plain integers on the hot path, Prometheus families when scraped. Register it in a registry."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, bool]] = Counter()
        self.refused: Counter[str] = Counter()  # before or without a decision, by reason
        self.failed_open: Counter[str] = Counter()  # by operation
        self.in_flight = 0
        self._buckets = [0] * (len(_BOUNDS_US) + 1)
        self._sum_us = 0

    def observe(self, cluster: str, operation: str, allowed: bool, elapsed_us: int) -> None:
        """Count one answered decision and how long it took."""
        self.answered[cluster, operation, allowed] += 1
        self._buckets[bisect_left(_BOUNDS_US, elapsed_us)] += 1
        self._sum_us += elapsed_us

    def collect(self) -> Iterator[Any]:
        """The families as Prometheus reads them."""
        answered = CounterMetricFamily(
            "sluicegate_admission_decisions", "Answered reviews.", labels=("cluster", "operation", "allowed")
        )
        for (cluster, operation, allowed), count in self.answered.items():
            answered.add_metric((cluster, operation, "true" if allowed else "false"), count)
        yield answered
        refused = CounterMetricFamily(
            "sluicegate_admission_refused", "Requests refused without a decision.", labels=("reason",)
        )
        for reason, count in self.refused.items():
            refused.add_metric((reason,), count)
        yield refused
        opened = CounterMetricFamily(
            "sluicegate_admission_failed_open",
            "Clean-up allowed in spite of an internal failure.",
            labels=("operation",),
        )
        for operation, count in self.failed_open.items():
            opened.add_metric((operation,), count)
        yield opened
        yield GaugeMetricFamily("sluicegate_admission_in_flight", "Reviews being handled.", self.in_flight)
        yield self._histogram()

    def _histogram(self) -> HistogramMetricFamily:
        total, buckets = 0, []
        for bound, count in zip((*_BOUNDS_US, None), self._buckets, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
        return HistogramMetricFamily(
            "sluicegate_admission_seconds",
            "From a review's headers to its answer.",
            buckets,
            self._sum_us / 1e6,
        )
