"""Cross checks: every rule that needs more than one field or object, each broken in one place."""

from __future__ import annotations

import pytest
from estates import ESTATE, doc, files, only, problems, swap, valid


def copy(file, **replace):
    """A second object made from a file of the estate."""
    text = ESTATE[f"{file}.yaml"]
    for old, new in replace.values():
        assert old in text
        text = text.replace(old, new)
    return text


BINDING2 = copy("binding", name=("name: train", "name: train2"))
LINK2 = copy("link", name=("name: ab\n", "name: ab2\n"))
FRESH = (
    LINK2.replace("ab-a", "ab2-a")
    .replace("ab-b", "ab2-b")
    .replace("000001", "000003")
    .replace("000002", "000004")
)
FLOW2 = copy("flow", name=("name: a-to-b", "name: again"))
PROFILE = ESTATE["profile.yaml"]


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        (files(again=ESTATE["tenant.yaml"]), "metadata.name", 'Tenant "acme" is declared twice, first at again.yaml:1'),
        (files(again=BINDING2), "spec.namespace", "bound twice"),
        (swap("binding", "namespace: train", "namespace: kube-system"), "spec.namespace", "platform namespace"),
        (swap("binding", "[us-a, eu-b]", "[us-a, eu-c]"), "spec.regions[1]", 'no site in region "eu-c"'),
        (swap("segment", "tenant: acme", "tenant: globex"), "spec.segments[0]", 'belongs to tenant "globex"'),
        (swap("segment", "dataset: data", "dataset: dat"), "spec.dataset", 'no Dataset "dat"'),
        (swap("dataset", "owner: acme", "owner: x"), "spec.owner", "no Tenant"),
        (swap("dataset", "[us-a, eu-b]", "[us-a, eu-b, eu-c]"), "spec.regions[2]", 'no site is in "eu-c"'),
        (swap("dataset", "sites: [a]", "sites: [a, z]"), "spec.sites[1]", "no Site"),
        (swap("cluster", "unbound: deny", "unbound: warn"), "spec.unbound", "needs an end date"),
        (swap("cluster", "unbound: deny", "warnNamespaces: [x]\n  unbound: deny"), "spec.unbound", "only with unbound: warn"),
        (swap("cluster", "{pathToken: true}", "{pathToken: false}"), "spec.identity", "API server is known"),
        (swap("cluster", "site-b: b", "site-b: z"), "spec.siteLabels.site-b", "no site of this cluster"),
        (swap("cluster", ", site-b: b", ""), "spec.sites[1]", 'no label value means site "b"'),
        (swap("cluster", "sites:", "siteLabel: topology.kubernetes.io/zone\n  sites:"), "spec.siteLabel", "kubelet"),
        (swap("profile", "vlan: 10", "vlan: 10\n  confidentialityOffset: 30"), "spec.confidentialityOffset", "only 0"),
        (swap("profile", "GCM-AES-XPN-256", "GCM-AES-256"), "spec.cipherSuite", "within seconds"),
        (swap("profile", "arm: 2s", "arm: 5s"), "spec.arm", "longer than ttl"),
        (swap("profile", "revertAfter: 5s", "revertAfter: 61s"), "spec.revertAfter", "longer than totalDeadline"),
        (swap("profile", "stepDeadline: 10s", "stepDeadline: 61s"), "spec.stepDeadline", "longer than totalDeadline"),
        (swap("profile", "overlap: 1s", "overlap: 2m"), "spec.overlap", "longer than totalDeadline"),
        (swap("profile", "softAge: 25h", "softAge: 23h"), "spec.rotateEvery", "longer than softAge"),
        (swap("profile", "hardAge: 48h", "hardAge: 24h"), "spec.softAge", "longer than hardAge"),
        (swap("profile", "prepareBefore: 30m", "prepareBefore: 24h"), "spec.prepareBefore", "not shorter than rotateEvery"),
        (swap("profile", "pathDelay: 50ms", "pathDelay: 11s"), "spec.pathDelay", "longer than stepDeadline"),
        (swap("profile", "vlan: 10", "vlan: 10\n  maxSaPerSc: 3"), "spec.maxSaPerSc", "not allowed"),
        (swap("link", "site: b", "site: a"), "spec.endpoints[1].site", "same site"),
        (swap("link", "0000020001", "0000010001"), "spec.endpoints[1].sci", "stands already at ab endpoints[0]"),
        (swap("link", "ab-b", "ab-a"), "spec.endpoints[1].agent", "stands already"),
        (swap("link", ', sci: "02c0de0000020001"', ""), "spec.endpoints[1]", "sci is missing"),
        (swap("link", "profile: fast", "profile: fast\n  diversePartner: ab"), "spec.diversePartner", "own partner"),
        (files(again=FLOW2), "metadata.name", "stands already at"),
        (swap("flow", "to: b", "to: a"), "spec.to", "same site"),
        (swap("flow", "links: [ab]", "links: [ab, ab]"), "spec.links", 'lead to "a", not to "b"'),
    ],
)  # fmt: skip
def test_each_rule_says_where_and_why(given, path, message):
    found = problems(given)
    assert any(p.path == path and message in p.message for p in found), [str(p) for p in found]


def test_a_second_link_is_fine_with_ends_of_its_own():
    assert valid(again=FRESH.replace("profile: fast", "profile: fast\n  diversePartner: ab"))


def test_a_partner_must_join_the_same_sites():
    site = doc("Site", "z", '  provider: gcp\n  region: us-a\n  jurisdiction: "US"')
    link = FRESH.replace("site: b", "site: z").replace("profile: fast", "profile: fast\n  diversePartner: ab")
    assert "joins other sites" in only(files(site_z=site, again=link)).message


def test_the_way_of_a_flow_must_be_in_order():
    site = doc("Site", "z", '  provider: gcp\n  region: us-a\n  jurisdiction: "US"')
    link = FRESH.replace("site: a", "site: z")
    flow = ESTATE["flow.yaml"].replace("to: b", "to: z")
    assert valid(site_z=site, again=link, flow=flow.replace("[ab]", "[ab, ab2]"))
    wrong = only(files(site_z=site, again=link, flow=flow.replace("[ab]", "[ab2, ab]")))
    assert 'the way has come to "a"' in wrong.message


def test_a_dataset_may_not_rest_outside_its_own_regions():
    given = files(dataset=ESTATE["dataset.yaml"].replace("[us-a, eu-b]", "[eu-b]"))
    assert any("outside the dataset's own regions" in p.message for p in problems(given))


def test_a_segment_may_not_rest_where_its_dataset_may_not_be():
    given = files(dataset=ESTATE["dataset.yaml"].replace("[us-a, eu-b]", "[us-a]"))
    assert ['site "b" is in region "eu-b", where "data" may not be'] == [p.message for p in problems(given)]


@pytest.mark.parametrize(
    ("rate", "hold", "lawful"),
    [
        (1, "6s", True),
        (1, "10m", True),
        (1, "12m", False),
        (10, "6s", False),
        (10, "1s", False),
        (1, "24h", False),
    ],
)
def test_headroom_of_packet_numbers(rate, hold, lawful):
    # 1 Gbit/s carries 1.488 M frames of 84 octets a second: 2^30 of them last 721 s, and poll, deadline and
    # rollback take 90 s of that.
    text = PROFILE.replace("GCM-AES-XPN-256", "GCM-AES-256").replace(
        "lineRateGbps: 100", f"lineRateGbps: {rate}"
    )
    text = text.replace("maxHold: 6s", f"maxHold: {hold}")
    if lawful:
        assert valid(profile=text)
    else:
        assert "2^30" in only(files(profile=text)).message


def test_a_hold_that_never_happens_costs_no_headroom():
    text = PROFILE.replace("GCM-AES-XPN-256", "GCM-AES-256").replace("lineRateGbps: 100", "lineRateGbps: 1")
    assert valid(profile=text.replace("maxHold: 6s", "maxHold: 24h\n  onControlLoss: close"))
    faster = text.replace("lineRateGbps: 1", "lineRateGbps: 50")
    said = only(files(profile=faster.replace("maxHold: 6s", "maxHold: 24h\n  onControlLoss: close")))
    assert "2^30" in said.message
    assert "maxHold" not in said.message + said.fix


def test_warn_is_lawful_with_an_end_and_names():
    text = ESTATE["cluster.yaml"].replace(
        "unbound: deny", 'unbound: warn\n  unboundUntil: "2027-03-31"\n  warnNamespaces: [old]'
    )
    cluster = valid(cluster=text).clusters["c"]
    assert 1_806_537_600 * 10**9 == cluster.unbound_until_ns  # 2027-04-01T00:00:00Z: it ends with the day
    both = text.replace("[old]", "[kube-system]")
    assert "exempt" in only(files(cluster=both)).message


@pytest.mark.parametrize("day", ["2027-3-31", "31.03.2027", "2027-02-30", "soon"])
def test_a_date_that_is_none(day):
    text = ESTATE["cluster.yaml"].replace("unbound: deny", f'unbound: warn\n  unboundUntil: "{day}"')
    assert any(p.path == "spec.unboundUntil" for p in problems(files(cluster=text)))


def test_an_unkeyed_link_is_declared_without_ends():
    text = ESTATE["link.yaml"].replace("required", "none")
    bare = "\n".join(
        line.partition(", agent")[0] + ("}" if "agent" in line else "") for line in text.splitlines()
    )
    assert not valid(link=bare).links["ab"].keyed
    assert (
        "is missing"
        in only(
            files(
                link=bare.replace("none", "required", 1).replace(
                    "{site: b}", '{site: b, agent: x, driver: mka, sci: "02c0de0000020001"}'
                )
            )
        ).message
    )
