"""Decisions: built-ins, new minus old, exceptions in any order, texts."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_world import NOW, all_cases, estate, example_questions, postures, shipped

from policy_engine.context import context as context_of
from policy_engine.errors import EngineNoResult
from policy_engine.facts import NoLookup, request_for
from policy_engine.facts import facts as facts_of
from policy_engine.rules.decision import Before, apply_waivers, decide
from policy_engine.rules.engine import Result, Violation
from policy_engine.rules.wasm import WasmEngine

TRAIN = next(case for case in all_cases() if case.name == "main/complete: a training job as it stands")
POLICY = shipped().policy_digest


class FakeEngine:
    """Gives the violations that the facts name under "fake"; says nothing of policies."""

    name = "fake"
    policy_digest = POLICY

    def __init__(self, fail=()):
        self.asked = []
        self.fail = fail

    def evaluate(self, input_bytes, digest):
        facts = json.loads(input_bytes)["facts"]
        self.asked.append(facts["subject"]["name"])
        if facts["subject"]["name"] in self.fail:
            raise EngineNoResult("late")
        found = tuple(sorted((Violation(*row) for row in facts.get("fake", [])), key=lambda row: row.key))
        return Result(found, POLICY, digest)


def thing(name="new", *fake, **facts):
    whole = copy.deepcopy(TRAIN.facts)
    whole["subject"]["name"] = name
    return {**whole, "fake": [list(row) for row in fake], **facts}


def judged(facts, old=None, context=TRAIN.context, engine=None, waivers=(), now=NOW):
    before = None if old is None else lambda: Before(old, context)
    return decide(engine or FakeEngine(), shipped(), facts, context, before, now, waivers=waivers)


def rules(reasons):
    return [reason.rule for reason in reasons]


A = ("residency.placement", "spec", "spec.nodeSelector", {"site": "a", "region": "r", "regions": []})
B = ("residency.placement", "spec", "spec.nodeSelector", {"site": "b", "region": "r", "regions": []})
CLEAR = ("encryption.endpoint", "main", "spec.containers", {"var": "V", "scheme": "http", "host": "h"})
ADVICE = ("encryption.gate_advisory", "spec", "p", {"link": "l"})


def test_no_violation_is_allowed_and_everything_is_named():
    decision = judged(thing())
    assert decision.allowed
    assert () == decision.reasons == decision.warnings
    assert ("fake", POLICY, shipped().bundle_digest) == (
        decision.engine,
        decision.policy_digest,
        decision.bundle_digest,
    )
    assert all(
        len(digest) == 64
        for digest in (decision.input_digest, decision.facts_digest, decision.context_digest)
    )


def test_a_violation_denies_with_rule_field_and_fix():
    decision = judged(thing("new", A))
    assert not decision.allowed
    reason = decision.reasons[0]
    assert ("residency.placement", "spec.nodeSelector") == (reason.rule, reason.path)
    assert 'site "a"' in reason.text
    assert "spec.nodeSelector" in reason.fix


def test_advice_only_warns():
    decision = judged(thing("new", ADVICE))
    assert decision.allowed
    assert ["encryption.gate_advisory"] == rules(decision.warnings)


def test_a_rule_without_metadata_denies():
    decision = judged(thing("new", ("pack.rule", "s", "p", {})))
    assert not decision.allowed
    assert "pack.rule" in decision.reasons[0].text


# New minus old


def test_what_was_there_before_is_a_warning():
    decision = judged(thing("new", A), thing("old", A))
    assert decision.allowed
    assert ["residency.placement"] == rules(decision.warnings)


def test_what_an_update_adds_is_denied():
    decision = judged(thing("new", A, B), thing("old", A))
    assert [B[3]] == [dict(reason.params) for reason in decision.reasons]
    assert [A[3]] == [dict(reason.params) for reason in decision.warnings]


def test_changed_params_are_a_new_violation():
    assert not judged(thing("new", B), thing("old", A)).allowed


def test_the_same_under_another_subject_is_a_new_violation():
    assert not judged(thing("new", (CLEAR[0], "side", *CLEAR[2:])), thing("old", CLEAR)).allowed


def test_a_moved_field_is_the_same_violation():
    assert judged(thing("new", (A[0], A[1], "elsewhere", A[3])), thing("old", A)).allowed


def test_an_update_that_repairs_is_allowed():
    assert judged(thing("new"), thing("old", A)).allowed


def test_the_old_object_is_evaluated_only_when_the_new_one_violates():
    engine = FakeEngine()
    judged(thing("new"), thing("old", A), engine=engine)
    assert ["new"] == engine.asked
    judged(thing("new", A), thing("old", A), engine=engine)
    assert ["new", "new", "old"] == engine.asked


def test_an_old_object_that_cannot_be_judged_excuses_nothing():
    engine = FakeEngine(fail=("old",))
    assert ["residency.placement"] == rules(judged(thing("new", A), thing("old", A), engine=engine).reasons)
    assert ["unbound"] == rules(judged(thing("new"), thing("old"), cluster(), engine).reasons)


def test_the_old_object_is_judged_by_its_own_context():
    """With the new object's slice, the old one would seem to land where only the new one does."""
    engine = WasmEngine(shipped())
    moved = copy.deepcopy(TRAIN.context)
    moved["landing"][0]["sites"] = ["aws-eu-west"]
    moved["reads"] = []
    facts = {**TRAIN.facts, "pods": [{**TRAIN.facts["pods"][0], "datasets": []}]}
    decision = decide(
        engine, shipped(), facts, moved, lambda: Before(facts, {**TRAIN.context, "reads": []}), NOW
    )
    assert {"residency.placement", "tenancy.jurisdiction"} == set(rules(decision.reasons))
    engine.close()


# The engine


def test_no_result_denies():
    decision = judged(thing("new"), engine=FakeEngine(fail=("new",)))
    assert not decision.allowed
    assert ["engine.no_result"] == rules(decision.reasons)
    assert "late" in decision.reasons[0].text


def test_no_result_is_never_excused_by_an_old_object():
    engine = FakeEngine(fail=("new", "old"))
    assert ["engine.no_result"] == rules(judged(thing("new"), thing("old"), engine=engine).reasons)


def test_a_defect_of_the_engine_denies_without_its_words():
    class Broken(FakeEngine):
        def evaluate(self, input_bytes, digest):
            raise RuntimeError("hvs.secret")

    decision = judged(thing(), engine=Broken())
    assert ["engine.no_result"] == rules(decision.reasons)
    assert "hvs" not in repr(decision)


@pytest.mark.parametrize("field", ["policy_digest", "input_digest"])
def test_an_answer_to_something_else_denies(field):
    class Foreign(FakeEngine):
        def evaluate(self, input_bytes, digest):
            return replace(super().evaluate(input_bytes, digest), **{field: "0" * 64})

    assert ["engine.no_result"] == rules(judged(thing(), engine=Foreign()).reasons)


def test_an_engine_of_another_policy_is_not_asked():
    engine = FakeEngine()
    engine.policy_digest = "0" * 64
    assert ["engine.no_result"] == rules(judged(thing(), engine=engine).reasons)
    assert [] == engine.asked


@pytest.mark.parametrize(
    "odd", [1.5, 2**60, "\ud800", {"k\u00e9y": 1}], ids=["float", "wide", "surrogate", "key"]
)
def test_values_outside_the_canonical_domain_deny(odd):
    assert ["engine.no_result"] == rules(judged(thing("new", odd=odd)).reasons)


# Built-ins


def cluster(**changes):
    return {
        **TRAIN.context,
        "bound": False,
        "cluster": {"name": "c", "known": True, "unbound": "deny", "platform": False, **changes},
    }


@pytest.mark.parametrize(
    ("changes", "allowed", "warned"),
    [
        ({}, False, False),
        ({"unbound": "ignore"}, True, False),
        ({"unbound": "warn", "until_ns": str(NOW + 1)}, True, True),
        ({"unbound": "warn", "until_ns": str(NOW)}, False, False),
        ({"unbound": "warn"}, False, False),
        ({"unbound": "warn", "until_ns": "soon"}, False, False),
        ({"unbound": "warn", "until_ns": 2**52}, False, False),
        ({"unbound": "Ignore"}, False, False),
        ({"unbound": None}, False, False),
        ({"unbound": "ignore", "known": False}, False, False),
        ({"platform": True}, True, False),
        ({"platform": "true"}, False, False),
    ],
)
def test_an_unbound_namespace_runs_only_where_that_is_plainly_said(changes, allowed, warned):
    decision = judged(thing(), context=cluster(**changes))
    assert allowed == decision.allowed
    assert (["unbound"] if not allowed else []) == rules(decision.reasons)
    assert (["unbound"] if warned else []) == rules(decision.warnings)


def test_bound_must_be_true_itself():
    for bound in (None, "true", 1, []):
        assert not judged(thing(), context={**cluster(), "bound": bound}).allowed


def test_an_update_in_an_unbound_namespace_that_changes_nothing_governed_is_allowed():
    """Else nothing there could lose a finalizer."""
    assert judged(thing("new"), thing("old"), context=cluster()).allowed
    changed = thing("new", images=["registry.example/other:2"])
    assert ["unbound"] == rules(judged(changed, thing("old"), context=cluster()).reasons)


def test_what_cannot_be_read_denies_and_is_never_excused():
    unreadable = [{"path": "spec.containers[0].image", "why": "malformed"}]
    new, old = thing("new", unreadable=unreadable), thing("old", unreadable=unreadable)
    assert ["facts.unreadable"] == rules(judged(new, old).reasons)
    assert "spec.containers[0].image" in judged(new).reasons[0].text


def test_what_cannot_be_read_only_warns_where_nothing_is_governed():
    new = thing("new", unreadable=[{"path": "p", "why": "w"}])
    decision = judged(new, context=cluster(unbound="ignore"))
    assert decision.allowed
    assert ["facts.unreadable"] == rules(decision.warnings)


def test_a_missing_referent_denies_a_pod_and_is_deferred_for_a_template():
    missing = [{"what": "PersistentVolumeClaim", "name": "corpus", "path": "spec.volumes"}]
    job, pod = thing("new", unresolved=missing), thing("new", unresolved=missing)
    pod["subject"]["kind"] = "Pod"
    assert ["facts.unresolved"] == rules(judged(job).warnings)
    assert judged(job).allowed
    assert ["facts.unresolved"] == rules(judged(pod).reasons)
    assert 'PersistentVolumeClaim "corpus"' in judged(pod).reasons[0].text


def test_a_missing_referent_of_an_unknown_kind_concerns_every_rule():
    missing = [{"what": "Oddity", "name": "x", "path": "p"}]
    assert judged(thing("new", unresolved=missing)).allowed
    strict = replace(
        shipped(),
        metadata={name: replace(meta, unresolved="deny") for name, meta in shipped().metadata.items()},
    )
    assert not decide(
        FakeEngine(), strict, thing("new", unresolved=missing), TRAIN.context, None, NOW
    ).allowed
    empty = replace(shipped(), metadata={})
    assert not decide(FakeEngine(), empty, thing("new", unresolved=missing), TRAIN.context, None, NOW).allowed


def test_a_template_without_pods_is_not_deferred():
    """Nothing will be created that could be judged later."""
    missing = [{"what": "Pod", "name": "x", "path": "p"}]
    assert not judged(thing("new", unresolved=missing, pods=[])).allowed


def test_a_delete_meets_no_built_in():
    facts = thing(
        "new", unreadable=[{"path": "p", "why": "w"}], unresolved=[{"what": "Pod", "name": "x", "path": "p"}]
    )
    facts["subject"]["operation"] = "DELETE"
    assert judged(facts, context=cluster()).allowed


def test_a_bundle_cannot_soften_a_built_in():
    soft = replace(
        next(iter(shipped().metadata.values())), rule="engine.no_result", severity="advice", exceptable=True
    )
    bundle = replace(shipped(), metadata={"engine.no_result": soft})
    assert not decide(FakeEngine(fail=("new",)), bundle, thing("new"), TRAIN.context, None, NOW).allowed


# Exceptions


@dataclass(frozen=True)
class Covers:
    """An exception for whole rules and one site; says nothing of time and approval."""

    id: str
    rules: frozenset[str]
    site: str = ""

    def covers(self, violation, _facts):
        return violation.rule in self.rules and self.site in ("", violation.params.get("site", ""))


RULES = sorted(shipped().metadata)
ROWS = st.lists(
    st.builds(
        lambda rule, site: Violation(rule, "spec", "p", {"site": site}),
        st.sampled_from([*RULES, "engine.no_result", "facts.unreadable", "unbound", "pack.unknown"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=8,
)
WAIVERS = st.lists(
    st.builds(
        Covers,
        st.sampled_from("uvwxyz"),
        st.frozensets(st.sampled_from([*RULES, "unbound", "engine.no_result"])),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=4,
)


@given(ROWS, WAIVERS)
def test_exceptions_compose_in_any_order(found, waivers):
    outcomes = [apply_waivers(shipped(), found, order, {}) for order in itertools.permutations(waivers)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(ROWS, WAIVERS)
def test_one_exception_after_another_is_all_at_once(found, waivers):
    left = list(found)
    for waiver in waivers:
        left, _, _ = apply_waivers(shipped(), left, [waiver], {})
    assert left == apply_waivers(shipped(), found, waivers, {})[0]


@given(ROWS, WAIVERS)
def test_only_exceptable_rules_are_excepted(found, waivers):
    everything = Covers(
        "all", frozenset([*RULES, "engine.no_result", "facts.unreadable", "unbound", "pack.unknown"])
    )
    kept, waived, _ = apply_waivers(shipped(), found, [*waivers, everything], {})
    assert all(shipped().metadata[row.rule].exceptable for row in waived)
    assert not any(row.rule in shipped().metadata and shipped().metadata[row.rule].exceptable for row in kept)


def test_an_excepted_violation_is_a_warning_that_names_the_exception():
    decision = judged(thing("new", A, B), waivers=[Covers("EX-7", frozenset({"residency.placement"}), "a")])
    assert [B[3]] == [dict(reason.params) for reason in decision.reasons]
    assert ["residency.placement"] == rules(decision.warnings)
    assert ("EX-7",) == decision.exceptions


def test_exceptions_come_after_new_minus_old():
    """An exception is not used up by what the update did not bring."""
    decision = judged(
        thing("new", A), thing("old", A), waivers=[Covers("EX-7", frozenset({"residency.placement"}))]
    )
    assert decision.allowed
    assert () == decision.exceptions


def test_break_glass_rules_are_never_exceptable():
    metas = shipped().metadata
    closed = [
        "residency.region",
        "residency.no_flow",
        "encryption.link",
        "encryption.gate",
        "tenancy.dataset",
        "tenancy.segment",
    ]
    assert not any(metas[rule].exceptable for rule in closed)


# With the real engine and the example estate


@pytest.fixture(scope="module")
def engine():
    made = WasmEngine(shipped())
    yield made
    made.close()


def job(data, namespace="acme-train", kind="datasets", selector="cw-us-east"):
    template = {
        "metadata": {"annotations": {f"sluicegate.io/{kind}": data}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"node-restriction.kubernetes.io/sluicegate-site": selector},
            "containers": [{"name": "main", "image": "registry.example/train:1"}],
        },
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace},
        "spec": {"template": template},
    }
    return facts_of(request_for(manifest), NoLookup(), cluster="train-us")


def decided(engine, facts, views=None):
    return decide(
        engine,
        shipped(),
        facts,
        context_of(facts, estate(), postures() if views is None else views),
        None,
        NOW,
    )


@pytest.mark.parametrize("kind", ["datasets", "segments"])
def test_a_foreign_name_and_an_absent_one_get_the_same_answer(engine, kind):
    known = sorted(estate().datasets if kind == "datasets" else estate().segments)
    namespace, foreign = next(
        (space, [name for name in known if name not in getattr(binding, kind)])
        for (where, space), binding in sorted(estate().bindings.items())
        if where == "train-us" and set(known) - set(getattr(binding, kind))
    )
    answers = set()
    for name in [*foreign, "no-such-name"]:
        decision = decided(engine, job(name, namespace, kind))
        assert not decision.allowed
        answers.add(
            repr(
                [(r.rule, r.text, r.fix, r.path, r.params) for r in (*decision.reasons, *decision.warnings)]
            ).replace(name, "NAME")
        )
    assert len(answers) == 1


def test_no_text_names_what_the_asker_did_not_name(engine):
    """Neither another tenant, nor its namespaces, data or segments."""
    for name, facts, context in example_questions():
        decision = decide(engine, shipped(), facts, context, None, NOW)
        tenant = context.get("tenant", {}).get("name")
        others = {one for one in estate().tenants if one != tenant}
        others |= {space for (_, space), binding in estate().bindings.items() if binding.tenant != tenant}
        said = " ".join(reason.text + reason.fix for reason in (*decision.reasons, *decision.warnings))
        asked = json.dumps(facts)
        assert [] == [word for word in others if word in said and word not in asked], name


def test_every_text_is_whole(engine):
    for case in all_cases():
        if case.want is None:
            continue
        decision = decide(engine, shipped(), case.facts, case.context, None, case.now_ns)
        for reason in (*decision.reasons, *decision.warnings):
            if reason.rule == "unbound":
                continue
            assert "{" not in reason.text.replace("{x}", "") + reason.fix, reason
            assert reason.fix
            assert "\n" not in reason.text + reason.fix


def test_a_closed_gate_says_since_when(engine):
    facts = job("us-corpus")
    assert decided(engine, facts).allowed
    decision = decided(engine, facts, postures(state="closed", verdict="violation"))
    if decision.allowed:  # the data lies where the pod runs: let it run elsewhere
        decision = decided(
            engine, job("us-corpus", selector="gcp-us-central"), postures(state="closed", verdict="violation")
        )
    gate = next(reason for reason in decision.reasons if reason.rule == "encryption.gate")
    assert "2026-09-21T13:56:40Z" in gate.text
    assert "encryption off" in gate.text
