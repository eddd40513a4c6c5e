"""Declared state takes effect with a record: bootstrap first, then changes, widening named."""

import pytest
import yaml

from evidence.database import Database
from evidence.records import decode_frame
from policy_engine.embedded.accept import accept_bundle, accept_resources, unapproved, warning
from policy_engine.embedded.begin import example_estate
from policy_engine.gate.verdicts import VerdictBatch, links_of_tenants
from policy_engine.resources.load import load, parse
from policy_engine.rules.bundle import shipped

NOW = 1_000_000_000_000


@pytest.fixture
def database(tmp_path):
    made = Database(tmp_path / "a.db")
    made.start()
    made.create_all()
    yield made
    made.stop()


def records(database):
    def read(conn):
        rows = conn.exec_driver_sql("SELECT frame FROM outbox_entry ORDER BY id").fetchall()
        parts = [decode_frame(row[0]) for row in rows]
        return [(part.header_fields()["kind"], part.public_fields()) for part in parts]

    return database.read_sync(read)


def changed(**fields):
    """The example estate with fields of the binding acme-train changed."""
    files = {path.name: path.read_bytes() for path in example_estate().glob("*.yaml")}
    document = yaml.safe_load(files["bindings.yaml"])
    binding = next(item for item in document["items"] if item["metadata"]["name"] == "acme-train")
    binding["spec"] |= fields
    files["bindings.yaml"] = yaml.safe_dump(document).encode()
    return parse(files)


def accept(database, resources):
    return database.write_sync(lambda conn: accept_resources(conn, resources, "x", NOW))


def test_the_first_set_is_a_bootstrap_and_the_same_set_again_is_nothing(database):
    estate = load(example_estate())
    assert [1, 1] == [accept(database, estate), accept(database, estate)]
    ((kind, public),) = records(database)
    assert ("bootstrap", estate.digest, 1) == (kind, public["digest"], public["generation"])


def test_a_widening_is_named_and_a_narrowing_is_not_called_one(database):
    accept(database, load(example_estate()))
    assert 2 == accept(database, changed(gate="advisory"))
    assert 3 == accept(database, changed(gate="required"))
    kinds = [kind for kind, _ in records(database)]
    assert ["bootstrap", "resource_set", "widened_unapproved", "resource_set"] == kinds
    (said,) = [public["changes"] for kind, public in records(database) if kind == "widened_unapproved"]
    assert "NamespaceBinding/acme-train gate" in said[0]


ADVISORY, WIDER = {"gate": "advisory"}, {"gate": "advisory", "undeclared": "closed-world"}
IN_FORCE = {
    "the first set": ([], 0),
    "one widening": ([ADVISORY], 1),
    "two at once": ([WIDER], 2),
    "two one after the other": ([ADVISORY, WIDER], 2),
    "one taken back": ([ADVISORY, {}], 0),
    "one of two taken back": ([WIDER, ADVISORY], 1),
    "narrowed and widened again": ([{"regions": ["us-east-04a"]}, {}], 1),
}


@pytest.mark.parametrize("name", IN_FORCE)
def test_a_widening_is_warned_of_for_as_long_as_it_is_in_force(database, name):
    steps, count = IN_FORCE[name]
    accept(database, load(example_estate()))
    for fields in steps:
        accept(database, changed(**fields))
    now = changed(**steps[-1]) if steps else load(example_estate())
    found = database.read_sync(lambda conn: unapproved(conn, now))
    assert count == len(found), found
    said = warning(found)
    assert bool(count) == bool(said)
    for line in said:
        assert f"{count} change" in line
        assert "unapproved" in line
        assert "production needs approvals" in line


def test_a_set_before_that_cannot_be_read_is_warned_of(database):
    accept(database, load(example_estate()))
    database.write_sync(
        lambda conn: conn.exec_driver_sql("UPDATE accepted_resources SET body = '[7]'") and None
    )
    accept(database, changed(gate="required", regions=["us-east-04a"]))
    now = changed(regions=["us-east-04a"])
    assert "cannot be read" in warning(database.read_sync(lambda conn: unapproved(conn, now)))[0]


def test_a_bundle_is_recorded_once(database):
    bundle = shipped()
    for _ in range(2):
        database.write_sync(lambda conn: accept_bundle(conn, bundle, "digest in the wheel", NOW))
    assert [("bundle", bundle.bundle_digest)] == [(k, p["bundle_digest"]) for k, p in records(database)]


def test_a_link_belongs_to_every_tenant_that_may_read_over_it():
    users = links_of_tenants(load(example_estate()))
    assert {"acme", "globex"} == users["cw-gcp-1"]
    assert {"acme"} == users["cw-aws-1"]


def test_silence_is_a_verdict_and_goes_to_estate_and_tenants():
    batch = VerdictBatch(NOW, lambda _: ("acme",), lambda _: 5, faulty=True)
    first = batch.flush(["l"], NOW + 5)
    assert [("estate", "unknown", True), ("acme", "unknown", True)] == [
        (d.scope, d.public["encrypted"], d.public["faults_enabled"]) for d in first
    ]
    assert first[0].header == first[1].header
    assert str(NOW + 5) == batch.flush(["l"], NOW + 9)[0].public["begin"]
