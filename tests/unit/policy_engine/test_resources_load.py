"""Loading: messages with file, line, field and nearest name; everything at once; folders, links, sizes."""

from __future__ import annotations

import json
import os
import re

import pytest
import yaml
from estates import ESTATE, EXAMPLE, doc, files, only, problems, swap, valid

from policy_engine.errors import ResourceErrors
from policy_engine.limits import LIMITS
from policy_engine.resources import KINDS, ResourceSet, load, parse, restore


def test_the_small_estate_is_valid():
    resources = valid()
    assert {"a", "b"} == set(resources.sites)
    assert "acme" == resources.bindings["c", "train"].tenant
    assert ("ab",) == resources.flows["a", "b"].links
    assert 24 * 3600 * 10**9 == resources.profiles["fast"].rotate_every_ns
    assert "NO" == resources.sites["b"].jurisdiction
    assert resources.links["ab"].keyed


@pytest.mark.parametrize(
    ("given", "line", "path", "message", "fix"),
    [
        (swap("site-a", "region: us-a", "regoin: us-a"), 7, "spec.regoin", "unknown field", '"region"'),
        (swap("site-a", "provider: gcp", "provider: gcq"), 6, "spec.provider", '"gcq" is not allowed', '"gcp"'),
        (swap("site-a", "kind: Site", "kind: Stie"), 2, "kind", 'unknown kind "Stie"', '"Site"'),
        (swap("site-a", "v1alpha1", "v1"), 1, "apiVersion", "apiVersion must be", ""),
        (swap("site-a", "spec:", "status: {}\nspec:"), 5, "status", 'unknown field "status"', "known:"),
        (swap("site-a", "name: a", "name: a\n  owner: me"), 5, "metadata.owner", "unknown field", "known:"),
        (swap("site-a", "name: a", "name: A_1"), 4, "metadata.name", "not well-formed", "lower-case"),
        (swap("site-b", '"NO"', "NO"), 8, "spec.jurisdiction", "truth value", "quotes"),
        (swap("site-b", '"NO"', '"no"'), 8, "spec.jurisdiction", 'write "NO"', ""),
        (swap("site-b", '"NO"', '"UK"'), 8, "spec.jurisdiction", '"GB"', ""),
        (swap("binding", "tenant: acme", "tenant: acmee"), 8, "spec.tenant", 'no Tenant "acmee"', '"acme"'),
        (swap("binding", "datasets: [data]", "datasets: [dta]"), 10, "spec.datasets[0]", "no Dataset", '"data"'),
        (swap("binding", "regions: [us-a, eu-b]", "regions: []"), 9, "spec.regions", "at least 1 entry", ""),
        (swap("profile", "rotateEvery: 24h", "rotateEvery: 24"), 9, "spec.rotateEvery", 'no unit: write "24s"', ""),
        (swap("profile", "rotateEvery: 24h", "rotateEvery: 24 hours"), 9, "spec.rotateEvery", "ms, s, m, h, d", ""),
        (swap("profile", "vlan: 10", "vlan: 4095"), 6, "spec.vlan", "4095", ""),
        (swap("profile", "vlan: 10", 'vlan: "10"'), 6, "spec.vlan", "whole number", ""),
        (swap("profile", "  arm: 2s\n", ""), 5, "spec.arm", "required", ""),
        (swap("link", '"02c0de0000010001"', "1122334455660001"), 9, "spec.endpoints[0].sci", "text is due", '"1122334455660001"'),
        (swap("link", '"02c0de0000010001"', '"02c0de000001"'), 9, "spec.endpoints[0].sci", "no SCI", ""),
        (swap("link", "agent: ab-a", "agnt: ab-a"), 9, "spec.endpoints[0].agnt", "unknown field", '"agent"'),
        (swap("cluster", "pathToken: true", "pathtoken: true"), 8, "spec.identity.pathtoken", "unknown field", '"pathToken"'),
        (swap("cluster", "site-a: a", "-bad: a"), 7, "spec.siteLabels.-bad", "not allowed", "label value"),
        (swap("flow", "class: bulk", "name: x\n  class: bulk"), 8, "spec.name", "unknown field", "metadata"),
        (swap("dataset", "owner: acme", "owner: acme\n  approvedBy: me"), 7, "spec.approvedBy", "unknown field", "known:"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_line_field_and_fix(given, line, path, message, fix):
    found = next(p for p in problems(given) if path in p.path)
    assert (line, path) == (found.line, found.path)
    assert message in found.message
    assert fix in found.fix


@pytest.mark.parametrize("text", ["- a\n", "just text\n", '"x"\n', "7\n"])
def test_a_document_that_is_no_object(text):
    assert "an object is due here" in only(files(extra=text)).message


@pytest.mark.parametrize("field", ["kind", "metadata", "spec", "apiVersion"])
@pytest.mark.parametrize("value", ["", "7", "[]", "{}", "x"])
def test_an_envelope_of_the_wrong_type_is_a_problem(field, value):
    text = {
        "apiVersion": "apiVersion: sluicegate.io/v1alpha1",
        "kind": "kind: Site",
        "metadata": "metadata: {name: z}",
        "spec": 'spec: {provider: gcp, region: z, jurisdiction: "US"}',
    }
    text[field] = f"{field}: {value}"
    assert problems(files(extra="\n".join(text.values())))


def test_everything_is_reported_at_once_and_in_order():
    given = files(
        site_b=ESTATE["site-b.yaml"].replace("region", "regin"),
        link=ESTATE["link.yaml"].replace("profile: fast", "profile: slow"),
        extra="a: no\n",
        broken="a: [\n",
    )
    found = problems(given)
    assert {"broken.yaml", "extra.yaml", "link.yaml", "site-b.yaml"} == {p.file for p in found}
    assert sorted(found, key=lambda p: (p.file, p.line)) == list(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kind: Stie\nmetadata: {name: A_1}\nspec: {name: x, provider: gcp, regin: z}\n",
            ["kind", "metadata.name", "spec.name", "spec.regin"],
        ),
        ("kind: Stie\nmetadata: {}\nspec: {provider: gcp}\n", ["kind", "metadata.name"]),
        ("kind: Stie\nmetadata: {name: 7}\n", ["kind", "metadata.name", "spec"]),
        ("kind: Site\nmetadata: {name: A_1}\nspec: []\n", ["metadata.name", "spec"]),
        (
            "kind: Site\nmetadata: x\nspec: {provider: gcq}\n",
            ["metadata", "spec.jurisdiction", "spec.provider", "spec.region"],
        ),
    ],
)
def test_what_can_be_judged_of_a_broken_object_is_reported_too(text, expected):
    found = problems(files(extra="apiVersion: sluicegate.io/v1alpha1\n" + text))
    assert expected == sorted(p.path for p in found if p.file == "extra.yaml")


def test_an_invalid_object_is_not_also_dangling():
    given = swap("site-a", "provider: gcp", "provider: gcq")
    assert ["spec.provider"] == [p.path for p in problems(given)]


def test_a_list_holds_several_objects():
    items = "".join(
        f"  - apiVersion: sluicegate.io/v1alpha1\n    kind: Tenant\n    metadata: {{name: {n}}}\n"
        f'    spec: {{displayName: {n}, jurisdictions: ["US"]}}\n'
        for n in ("tx", "ty")
    )
    head = "apiVersion: v1\nkind: List\nitems:\n"
    assert {"tx", "ty"} <= set(parse(files(more=head + items)).tenants)
    wrong = only(files(more=head + items.replace("displayName: ty", "displayNam: ty, displayName: ty")))
    assert (11, "items[1].spec.displayNam") == (wrong.line, wrong.path)
    assert "needs items" in problems(files(more="apiVersion: v1\nkind: List\nitems: []\n"))[0].message


def test_two_documents_in_a_file_are_refused():
    both = ESTATE["tenant.yaml"] + "---\n" + doc("Tenant", "z", '  displayName: Z\n  jurisdictions: ["US"]')
    found = problems(files(tenant=both))
    assert any("second document" in p.message and p.file == "tenant.yaml" for p in found)


def test_a_directory_is_read_with_its_folders(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("a: [")
    (tmp_path / "README.md").write_text("# not read\n")
    for i, (name, text) in enumerate(ESTATE.items()):
        (tmp_path / ("sub" if i % 2 else ".") / name).write_text(text)
    assert valid().digest == load(tmp_path).digest


def write(folder, given=None):
    for name, text in (given or files()).items():
        (folder / name).write_bytes(text)


def errors(folder):
    with pytest.raises(ResourceErrors) as caught:
        load(folder)
    return [str(p) for p in caught.value.problems]


def test_an_empty_directory_is_a_problem(tmp_path):
    assert "no *.yaml" in errors(tmp_path)[0]


def test_a_large_file_is_refused_by_its_size(tmp_path):
    write(tmp_path)
    with (tmp_path / "big.yaml").open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    assert any("big.yaml: the file is larger than" in e for e in errors(tmp_path))


def test_links_may_not_lead_out(tmp_path):
    estate, outside = tmp_path / "estate", tmp_path / "outside"
    estate.mkdir()
    outside.mkdir()
    write(estate)
    (outside / "x.yaml").write_text(ESTATE["site-a.yaml"])
    (estate / "x.yaml").symlink_to(outside / "x.yaml")
    (estate / "dir").symlink_to(outside)
    (estate / "gone.yaml").symlink_to(outside / "absent.yaml")
    found = errors(estate)
    assert any("x.yaml: the link leads out" in e for e in found)
    assert any("dir: a link to a folder" in e for e in found)
    assert any("gone.yaml: the file cannot be read" in e for e in found)


def test_links_inside_are_followed_as_config_maps_mount_them(tmp_path):
    hidden = tmp_path / "..2026"
    hidden.mkdir()
    write(hidden)
    for name in files():
        (tmp_path / name).symlink_to(hidden / name)
    assert valid().digest == load(tmp_path).digest


def test_a_file_counts_whatever_the_case_of_its_ending(tmp_path):
    write(tmp_path)
    (tmp_path / "X.YAML").write_text("a: 1\n")
    assert any(e.startswith("X.YAML") for e in errors(tmp_path))


def test_a_pipe_is_refused_and_does_not_block(tmp_path):
    write(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    assert any("not a regular file" in e for e in errors(tmp_path))


def test_the_number_of_problems_shown_is_bounded():
    many = {f"f{i}.yaml": b"a: no\n" for i in range(LIMITS.problems_reported)}
    assert LIMITS.problems_reported == len(problems({**files(), **many}))


def test_the_client_ca_is_read_in_and_covered_by_the_digest(tmp_path):
    trustme = pytest.importorskip("trustme")
    pem = trustme.CA().cert_pem.bytes()
    cluster = ESTATE["cluster.yaml"].replace("{pathToken: true}", "{clientCAFile: ca.pem}")
    one = parse({**files(cluster=cluster), "ca.pem": pem})
    two = parse({**files(cluster=cluster), "ca.pem": trustme.CA().cert_pem.bytes()})
    assert pem.decode() == one.clusters["c"].identity.client_ca
    assert one.digest != two.digest
    write(tmp_path, {**files(cluster=cluster), "ca.pem": pem})
    assert one.digest == load(tmp_path).digest
    assert "cannot be read here" in only(files(cluster=cluster)).message
    secret = b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"
    assert "private key" in only({**files(cluster=cluster), "ca.pem": secret}).message
    assert "no PEM" in only({**files(cluster=cluster), "ca.pem": b"x"}).message


def test_the_digest_covers_meaning_not_layout():
    spaced = valid(tenant=ESTATE["tenant.yaml"].replace("spec:", "# words\nspec:"))
    written_out = valid(dataset=ESTATE["dataset.yaml"] + "  classification: confidential\n")
    assert valid().digest == spaced.digest == written_out.digest
    assert valid().digest != parse(swap("tenant", "Acme", "Acme2")).digest


def test_a_set_is_frozen():
    resources = valid()
    with pytest.raises(AttributeError):
        resources.digest = "x"
    with pytest.raises(TypeError):
        resources.sites["z"] = resources.sites["a"]
    assert 7 == resources.with_generation(7).generation
    assert resources.digest == resources.with_generation(7).digest


def test_what_was_written_down_is_restored(tmp_path):
    resources = load(EXAMPLE)
    again = restore(json.loads(json.dumps(resources.manifests())), generation=3)
    assert (resources.digest, resources.objects, 3) == (again.digest, again.objects, again.generation)
    pem = pytest.importorskip("trustme").CA().cert_pem.bytes()
    cluster = ESTATE["cluster.yaml"].replace("{pathToken: true}", "{clientCAFile: ca.pem}")
    with_ca = parse({**files(cluster=cluster), "ca.pem": pem})
    assert with_ca.digest == restore(with_ca.manifests()).digest


def test_the_example_estate():
    resources = load(EXAMPLE)
    assert isinstance(resources, ResourceSet)
    sizes = (3, 2, 2, 4, 4, 2, 2, 5)
    assert sizes == tuple(
        len(getattr(resources, kind))
        for kind in ("sites", "clusters", "tenants", "bindings", "links", "datasets", "segments", "flows")
    )
    assert ["gcp-aws-legacy"] == [name for name, link in resources.links.items() if not link.keyed]


def test_the_examples_of_the_reference_are_a_valid_estate():
    text = (EXAMPLE.parents[2] / "docs" / "resources.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    site = ESTATE["site-a.yaml"].replace("name: a", "name: aws-eu-west").replace("us-a", "eu-west-1")
    resources = parse({f"{i}.yaml": block.encode() for i, block in enumerate([*blocks, site])})
    assert set(KINDS) == {r.KIND for r in resources.objects}
    for model in KINDS.values():
        for name, field in model.model_fields.items():
            if name not in {"name", "diverse_partner"}:
                assert re.search(rf"\b{field.alias or name}\b", text), (model.KIND, name)


def test_the_defaults_of_the_reference_are_those_of_the_models():
    text = (EXAMPLE.parents[2] / "docs" / "resources.md").read_text()
    said = {}
    for kind, block in re.findall(r"```yaml\n.*?kind: (\w+)\n(.*?)```", text, re.DOTALL):
        for field, shown, comment in re.findall(r"^  (\w+): (\S+|\[\]) +# (.*)$", block, re.MULTILINE):
            for form in (r"([\w-]+) \(default\)", r"default (\w+)", r"(^(?:the )?default\b)"):
                if found := re.search(form, comment):
                    said[kind, field] = shown if "default" in found[1] else found[1]
                    break
    models = {
        (kind, field.alias): field for kind, model in KINDS.items() for field in model.model_fields.values()
    }
    assert len(said) >= 10
    for key, value in said.items():
        default = models[key].default
        assert (list(default) if isinstance(default, tuple) else default) == yaml.safe_load(value), key
