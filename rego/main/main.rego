# The one entrypoint. It is a complete rule: either everything that the packs rely on is there and of
# the right type, and the answer carries the policy's digest and echoes the input's, or it is undefined,
# which every engine turns into a denial. A pack may therefore read the checked fields without care.
#
# For all other fields: `not f(x.y)` and `not x.y in z` are undefined, not true, when x.y is undefined (the
# compiler takes the reference out of the negation), and a rule that hangs on it falls silent. So behind a
# `not` stands a named helper whose arguments are variables or checked fields.
package sluicegate.main

import data.sluicegate.build
import data.sluicegate.encryption
import data.sluicegate.lib
import data.sluicegate.residency
import data.sluicegate.tenancy

# METADATA
# title: Every violation of one object, bound to policy and input
# entrypoint: true
result := {
	"policy_digest": build.policy_digest,
	"input_digest": input.digest,
	"violations": violations,
} if {
	is_string(input.digest)
	lib.digits(input.now)
	facts_complete
	context_complete
}

violations := (residency.violations | tenancy.violations) | encryption.violations

facts_complete if {
	input.facts.v == 1
	is_string(input.facts.subject.kind)
	is_array(input.facts.pods)
	every pod in input.facts.pods {
		is_string(pod.path)
		is_string(pod.name)
		placed(pod.path)
		named(pod.datasets)
		named(pod.segments)
		is_boolean(pod.declared)
		endpoints(pod.endpoints)
	}
	is_array(input.facts.stores)
	every store in input.facts.stores { addressed(store, ["path", "name", "scheme", "host", "bucket"]) }
}

context_complete if {
	input.context.v == 1
	object.get(input.context, "incomplete", false) == false
	is_boolean(input.context.bound)
	is_object(input.context.sites)
	is_object(input.context.datasets)
	is_object(input.context.segments)
	is_object(input.context.links)
	is_array(input.context.landing)
	every landing in input.context.landing {
		is_string(landing.pod)
		strings(landing.sites)
		strings(landing.unmapped)
	}
	is_array(input.context.reads)
	every read in input.context.reads {
		is_string(read.pod)
		read.kind in {"dataset", "segment"}
		is_string(read.name)
		is_string(read.from)
		is_string(read.to)
		strings(read.links)
	}
}

# A pod of which the host forgot to say where it may land is no pod without a place. (Where a namespace is
# not bound, nothing depends on it.)
placed(path) if path in landed

placed(_) if input.context.bound == false

landed contains landing.pod if some landing in input.context.landing

named(items) if {
	is_array(items)
	every item in items {
		is_string(item.name)
		is_string(item.path)
		is_string(object.get(item, "via", ""))
	}
}

endpoints(items) if {
	is_array(items)
	every item in items { addressed(item, ["container", "var", "scheme", "host"]) }
}

addressed(item, fields) if {
	every name in fields { is_string(item[name]) }
}

strings(items) if {
	is_array(items)
	every item in items { is_string(item) }
}
