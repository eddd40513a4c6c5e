"""What docs/webhook.md says in figures and words is what the code does."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from policy_engine.admission import app, handler, protocol
from policy_engine.admission.tally import AdmissionMetrics
from policy_engine.limits import LIMITS
from policy_engine.listeners import ListenerSpec

PAGE = (Path(__file__).resolve().parents[3] / "docs/webhook.md").read_text(encoding="utf-8")


def test_the_page_says_what_each_failure_is_answered_with() -> None:
    said = re.findall(r"\| denied, (\d{3}), `(engine\.\w+)` \|", PAGE)
    assert {(str(code), rule) for rule, (code, _) in handler._FAILURES.items()} == set(said)


def test_the_page_names_the_reasons_of_kubernetes_that_are_used() -> None:
    (line,) = re.findall(r"^\* `status.reason` .*$", PAGE, re.MULTILINE)
    codes = (400, 401, 403, 404, 405, 408, 413, 429, 500, 503)
    answers = [json.loads(protocol.answer("", False, code=code)) for code in codes]
    used = {one["response"]["status"]["reason"] for one in answers}
    assert used == set(re.findall(r"`([A-Z]\w+)`", line))


def test_the_page_names_every_metric_and_no_other() -> None:
    families = AdmissionMetrics().collect()
    names = {one.name + ("_total" if one.type == "counter" else "") for one in families}
    assert names == set(re.findall(r"`(sluicegate_\w+)`", PAGE))


def test_the_page_names_every_reason_of_a_refusal() -> None:
    """Those before the body stand in a table of their own, see `test_admission_identities`."""
    (table,) = re.findall(r"\| `reason` \| what \|\n(.*?)\n\n", PAGE, re.DOTALL)
    said = {
        name for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in cell.split("`")[1::2]
    }
    in_app = set(re.findall(r'\.refused\["(\w+)"\]', inspect.getsource(app)))
    assert in_app | {rule.removeprefix("engine.") for rule in handler._FAILURES} == said


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (r"over (\d+) MiB", LIMITS.review_body_bytes / 2**20),
        (r"slower than (\d+) s", LIMITS.review_body_s),
        (r"more than (\d+) reviews at once in all", LIMITS.reviews_in_flight),
        (r"in all, or (\d+) of one cluster", LIMITS.reviews_in_flight_per_cluster),
        (r"more than ([\d,]+) reviews at once, or", 2 * LIMITS.reviews_in_flight),
        (r"more than (\d+) MiB of bodies", LIMITS.body_bytes_in_flight / 2**20),
        (r"headers over (\d+) KiB", LIMITS.http_header_bytes / 2**10),
        (r"more than (\d+) requests that wait", LIMITS.http_pipeline),
        (r"headers that take more than (\d+) s", LIMITS.http_header_s),
        (r"for (\d+) s at most \(`http_drain_s`\)", LIMITS.http_drain_s),
        (r"holds ([\d,]+) connections", ListenerSpec.__dataclass_fields__["max_connections"].default),
        (r"ends after (\d+) s", ListenerSpec.__dataclass_fields__["keep_alive_s"].default),
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
