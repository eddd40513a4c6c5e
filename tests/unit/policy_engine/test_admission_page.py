"""What docs/webhook.md says in figures and words is what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from policy_engine.admission import handler, protocol
from policy_engine.admission.tally import AdmissionMetrics
from policy_engine.limits import LIMITS

PAGE = (Path(__file__).resolve().parents[3] / "docs/webhook.md").read_text(encoding="utf-8")


def test_the_page_says_what_each_failure_is_answered_with() -> None:
    said = re.findall(r"\| denied, (\d{3}), `(engine\.\w+)` \|", PAGE)
    assert {(str(code), rule) for rule, (code, _) in handler._FAILURES.items()} == set(said)


def test_the_page_names_the_reasons_of_kubernetes_that_are_used() -> None:
    (line,) = re.findall(r"^\* `status.reason` .*$", PAGE, re.MULTILINE)
    used = {protocol._REASONS[code] for code in (400, 401, 403, 404, 405, 408, 413, 429, 503)}
    assert used == set(re.findall(r"`([A-Z]\w+)`", line))


def test_metrics_that_the_page_names_are_there() -> None:
    registry = CollectorRegistry()
    metrics = AdmissionMetrics()
    metrics.failed_open["DELETE"] += 1
    registry.register(metrics)
    text = generate_latest(registry).decode()
    named = set(re.findall(r"`(sluicegate_\w+)`", PAGE))
    assert named
    assert all(f"\n{name}{{" in text for name in named)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (r"over (\d+) MiB", LIMITS.review_body_bytes / 2**20),
        (r"slower than (\d+) s", LIMITS.review_body_s),
        (r"The deadline is (\d+) s", LIMITS.decision_deadline_ms / 1000),
        (r"or ([\d.]+) s less", LIMITS.deadline_margin_ms / 1000),
        (r"first ([\d,]+) octets", protocol._BEGIN_OCTETS),
        (r"one over (\d+) characters", LIMITS.review_uid_chars),
        (r"\((\d+) characters each", LIMITS.warning_chars),
        (r"each, ([\d,]+) in all", LIMITS.warnings_chars),
    ],
)
def test_figures_of_the_page_are_the_limits(figure: str, value: Any) -> None:
    (said,) = re.findall(figure, PAGE)
    assert value == float(said.replace(",", ""))
