# What the packs share: look-ups in the context, each with a default that breaks the rule that asks.
package sluicegate.lib

# Only a namespace with a binding has regions, a tenant and grants. An unbound one is judged outside Rego
# (built-in denial `unbound`), and nothing is granted to it.
bound if input.context.bound == true

region(site) := object.get(input.context.sites, [site, "region"], "unknown")

jurisdiction(site) := object.get(input.context.sites, [site, "jurisdiction"], "unknown")

dataset_granted(name) if input.context.datasets[name].granted == true

# A segment is cut for one tenant: a grant to another one is a mistake, not a permission.
segment_granted(name) if {
	input.context.segments[name].granted == true
	input.context.segments[name].tenant == input.context.tenant.name
}

granted("dataset", name) if dataset_granted(name)

granted("segment", name) if segment_granted(name)

# Regions from which data may be read; none when nothing is declared.
data_regions("dataset", name) := object.get(input.context.datasets, [name, "regions"], [])

data_regions("segment", name) := object.get(input.context.segments, [name, "regions"], [])

# A pod's name outlives another order of the list that it stands in; its path does not. So violations are
# about the name. The first, should two pods have one path.
pod_name(path) := min(pod_names[path]) if {
	count(pod_names[path]) > 0
} else := path

pod_names[path] contains pod.name if {
	some pod in input.facts.pods
	path := pod.path
}

# What a refusal may call data that is not granted: a name behind a claim may be another tenant's.
shown(item) := concat("", ["(of ", item.via, ")"]) if {
	object.get(item, "via", "") != ""
} else := item.name

declared(pod, "dataset") := pod.datasets

declared(pod, "segment") := pod.segments

# The field in which a pod declares data: the first, when it stands in several.
data_path(pod_path, kind, name) := min(paths) if {
	paths := {item.path |
		some pod in input.facts.pods
		pod.path == pod_path
		some item in declared(pod, kind)
		item.name == name
	}
	count(paths) > 0
} else := pod_path

field(pod_path, name) := concat(".", [pod_path, name])

# Nothing but decimal digits, and at least one.
digits(text) if {
	is_string(text)
	text != ""
	trim(text, "0123456789") == ""
}
