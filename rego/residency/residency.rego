# METADATA
# title: Residency
# description: Where a workload may run, and from where data may be read.
package sluicegate.residency

import data.sluicegate.lib

# METADATA
# title: Data is read only from the regions that its owner allows
# description: >-
#   Every site where the pod may land is looked at, not only the one where it happens to be scheduled:
#   a pod without a selector may land at every site of its cluster.
# custom:
#   id: residency.region
#   text: >-
#     {kind} "{name}" may be read only from {regions}, but this pod may land at site "{site}",
#     which is in region {region}
#   fix: >-
#     restrict the pod to sites in {regions} by nodeSelector or required node affinity on the cluster's
#     site label, or declare another {kind} in {path}
#   severity: critical
#   controls: ["NIST-800-53:AC-4", "NIST-800-53:SA-9(5)", "ISO-27001:A.5.34"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "residency.region",
	"subject": lib.pod_name(read.pod),
	"path": lib.data_path(read.pod, read.kind, read.name),
	"params": {"kind": read.kind, "name": read.name, "site": read.to, "region": region, "regions": regions},
} if {
	some read in input.context.reads
	not readable(read)
	lib.granted(read.kind, read.name)
	region := lib.region(read.to)
	regions := lib.data_regions(read.kind, read.name)
}

# The usual answer by direct look-ups, so that details are computed for violations only.
readable(read) if {
	input.context.sites[read.to].region in input.context[holders[read.kind]][read.name].regions
}

holders := {"dataset": "datasets", "segment": "segments"}

# METADATA
# title: Pods land only in the regions of their namespace's binding
# custom:
#   id: residency.placement
#   text: >-
#     this pod may land at site "{site}" in region {region}, but its namespace is bound to {regions}
#   fix: >-
#     restrict it to sites in {regions} in {path} (or by required node affinity), with the cluster's site
#     label as key
#   severity: high
#   controls: ["NIST-800-53:SA-9(5)", "ISO-27001:A.5.23"]
#   exceptable: true
#   unresolved: defer
#   needs: ["Node"]
violations contains {
	"rule": "residency.placement",
	"subject": lib.pod_name(landing.pod),
	"path": lib.field(landing.pod, "nodeSelector"),
	"params": {"site": site, "region": region, "regions": regions},
} if {
	lib.bound
	regions := object.get(input.context, ["binding", "regions"], [])
	some landing in input.context.landing
	some site in landing.sites
	not placed(site, regions)
	region := lib.region(site)
}

placed(site, regions) if input.context.sites[site].region in regions

# METADATA
# title: A pod has a site where it may land
# description: >-
#   When no site of the cluster matches the pod's selectors, where it would run is not known; a label that
#   is missing in the cluster's site map could be added later and let it run anywhere.
# custom:
#   id: residency.unplaced
#   text: no site of this cluster matches the placement of this pod
#   fix: >-
#     use one of the cluster's site labels in {path}, or remove the selector that matches no site
#   severity: high
#   controls: ["NIST-800-53:SA-9(5)"]
#   exceptable: true
#   unresolved: defer
#   needs: ["Node"]
violations contains {
	"rule": "residency.unplaced",
	"subject": lib.pod_name(landing.pod),
	"path": lib.field(landing.pod, "nodeSelector"),
	"params": {},
} if {
	lib.bound
	some landing in input.context.landing
	count(landing.sites) == 0
}

# METADATA
# title: A pod's selector names only values that the cluster maps to a site
# custom:
#   id: residency.unmapped
#   text: >-
#     this pod may land on nodes whose site label is "{value}", which this cluster maps to no site
#   fix: use a mapped value of the cluster's site label in {path}, or have "{value}" added to the Cluster
#   severity: high
#   controls: ["NIST-800-53:SA-9(5)"]
#   exceptable: true
#   unresolved: defer
#   needs: ["Node"]
violations contains {
	"rule": "residency.unmapped",
	"subject": lib.pod_name(landing.pod),
	"path": lib.field(landing.pod, "nodeSelector"),
	"params": {"value": value},
} if {
	lib.bound
	some landing in input.context.landing
	some value in landing.unmapped
}

# METADATA
# title: Data crosses sites only over a declared flow
# custom:
#   id: residency.no_flow
#   text: >-
#     {kind} "{name}" is held at site "{from}" and this pod may land at site "{to}", but no Flow is
#     declared from "{from}" to "{to}"
#   fix: >-
#     keep the pod off site "{to}" by its node selector, declare other data in {path}, or ask the network
#     team for a Flow from "{from}" to "{to}"
#   severity: critical
#   controls: ["NIST-800-53:AC-4", "NIST-800-53:SC-7"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "residency.no_flow",
	"subject": lib.pod_name(read.pod),
	"path": lib.data_path(read.pod, read.kind, read.name),
	"params": {"kind": read.kind, "name": read.name, "from": read.from, "to": read.to},
} if {
	some read in input.context.reads
	read.from != read.to
	not has_flow(read)
	lib.granted(read.kind, read.name)
}

has_flow(read) if {
	is_string(read.flow)
	count(read.links) > 0
}

# METADATA
# title: Declared data is held somewhere
# description: Data of which no site is known to hold a copy has no path that could be judged.
# custom:
#   id: residency.not_held
#   text: >-
#     no path is known by which {kind} "{name}" could be read at site "{to}": no site holds it
#   fix: >-
#     declare other data in {path}, or ask the data team to name the sites that hold {kind} "{name}"
#   severity: high
#   controls: ["NIST-800-53:AC-4"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "residency.not_held",
	"subject": pod.name,
	"path": item.path,
	"params": {"kind": kind, "name": item.name, "to": to},
} if {
	some pod in input.facts.pods
	some kind in ["dataset", "segment"]
	some item in lib.declared(pod, kind)
	lib.granted(kind, item.name)
	some to in landing_sites[pod.path]
	not [pod.path, kind, item.name, to] in reached
}

# By pod, so that an object of many pods is not looked through once for each of them.
landing_sites[landing.pod] contains site if {
	some landing in input.context.landing
	some site in landing.sites
}

reached contains [read.pod, read.kind, read.name, read.to] if some read in input.context.reads
