# METADATA
# title: Tenancy
# description: What data a namespace may name, and under which jurisdictions its tenant may run.
package sluicegate.tenancy

import data.sluicegate.lib

# METADATA
# title: A dataset is granted to the namespace that declares it
# description: >-
#   The same answer for a dataset of another tenant and for one that does not exist: a refusal must not
#   tell which names exist.
# custom:
#   id: tenancy.dataset
#   text: dataset "{name}" is not granted to this namespace
#   fix: correct the name in {path}, or ask the data team to grant it in the NamespaceBinding
#   severity: critical
#   controls: ["NIST-800-53:AC-3", "ISO-27001:A.5.15"]
#   exceptable: false
#   unresolved: defer
#   needs: ["PersistentVolumeClaim"]
violations contains {
	"rule": "tenancy.dataset",
	"subject": pod.name,
	"path": item.path,
	"params": {"name": lib.shown(item)},
} if {
	some pod in input.facts.pods
	some item in pod.datasets
	not lib.dataset_granted(item.name)
}

# METADATA
# title: A segment is granted to the namespace that declares it
# description: One answer for a segment of another tenant and for one that does not exist, as for datasets.
# custom:
#   id: tenancy.segment
#   text: segment "{name}" is not granted to this namespace
#   fix: correct the name in {path}, or ask the data team to grant it in the NamespaceBinding
#   severity: critical
#   controls: ["NIST-800-53:AC-3", "ISO-27001:A.5.15"]
#   exceptable: false
#   unresolved: defer
#   needs: ["PersistentVolumeClaim"]
violations contains {
	"rule": "tenancy.segment",
	"subject": pod.name,
	"path": item.path,
	"params": {"name": lib.shown(item)},
} if {
	some pod in input.facts.pods
	some item in pod.segments
	not lib.segment_granted(item.name)
}

# METADATA
# title: A workload declares the data that it reads
# description: >-
#   Without a declaration nothing can be said of its paths. A binding may allow such workloads with
#   `undeclared: closed-world`; the network then has to keep data out of their reach.
# custom:
#   id: tenancy.undeclared
#   text: this pod declares no data, and its namespace requires a declaration
#   fix: >-
#     set the annotation sluicegate.io/datasets or sluicegate.io/segments on the pod template ("none" when it
#     reads no governed data), or ask for "undeclared: closed-world" in the NamespaceBinding
#   severity: medium
#   controls: ["NIST-800-53:AC-4"]
#   exceptable: true
#   unresolved: defer
#   needs: ["PersistentVolumeClaim"]
violations contains {
	"rule": "tenancy.undeclared",
	"subject": pod.name,
	"path": pod.path,
	"params": {},
} if {
	lib.bound
	object.get(input.context, ["binding", "undeclared"], "deny") != "closed-world"
	some pod in input.facts.pods
	pod.declared == false
}

# METADATA
# title: A tenant runs only under its own jurisdictions
# custom:
#   id: tenancy.jurisdiction
#   text: >-
#     this pod may land at site "{site}" under jurisdiction {jurisdiction}, but its tenant may run only
#     under {jurisdictions}
#   fix: >-
#     restrict the pod to sites under {jurisdictions} in {path} (or by required node affinity), with the
#     cluster's site label as key
#   severity: critical
#   controls: ["NIST-800-53:SA-9(5)", "GDPR:Art.44"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node"]
violations contains {
	"rule": "tenancy.jurisdiction",
	"subject": lib.pod_name(landing.pod),
	"path": lib.field(landing.pod, "nodeSelector"),
	"params": {"site": site, "jurisdiction": jurisdiction, "jurisdictions": jurisdictions},
} if {
	lib.bound
	jurisdictions := object.get(input.context, ["tenant", "jurisdictions"], [])
	some landing in input.context.landing
	some site in landing.sites
	not seated(site, jurisdictions)
	jurisdiction := lib.jurisdiction(site)
}

seated(site, jurisdictions) if input.context.sites[site].jurisdiction in jurisdictions
