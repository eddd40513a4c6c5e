# METADATA
# title: Encryption
# description: Data moves only over links that are proved encrypted now, and to endpoints that speak TLS.
package sluicegate.encryption

import data.sluicegate.lib

# METADATA
# title: Data crosses sites only over links that are encrypted
# description: A link that declares no encryption, or was never keyed, carries no governed data.
# custom:
#   id: encryption.link
#   text: >-
#     {kind} "{name}" would be read over link "{link}" (flow "{flow}"), which is not encrypted: {why:words}
#   fix: >-
#     keep the pod at the site that holds the data by its node selector, declare other data in {path}, or
#     ask the network team to run flow "{flow}" over an encrypted link
#   severity: critical
#   controls: ["NIST-800-53:SC-8(1)", "ISO-27001:A.8.24"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "encryption.link",
	"subject": lib.pod_name(read.pod),
	"path": lib.data_path(read.pod, read.kind, read.name),
	"params": {"kind": read.kind, "name": read.name, "link": link, "flow": flow_name(read), "why": why},
} if {
	some [read, link] in crossings
	why := clear_because(link)
}

# METADATA
# title: Data crosses sites only over links that are proved encrypted now
# description: >-
#   The link's encryption is required and it was keyed, but the gate is closed, or recent evidence shows a
#   violation or nothing at all. Binding `gate: advisory` turns this into a warning.
# custom:
#   id: encryption.gate
#   text: >-
#     {kind} "{name}" would be read over link "{link}" (flow "{flow}"), which is not proved encrypted since
#     {since_ns:time}: {reason:words} (gate {state}, posture {posture})
#   fix: >-
#     retry when `sluicegate links --why {link}` says ok, or keep the pod at the site that holds the data by
#     its node selector
#   severity: critical
#   controls: ["NIST-800-53:SC-8(1)", "NIST-800-53:CA-7", "ISO-27001:A.8.24"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "encryption.gate",
	"subject": lib.pod_name(read.pod),
	"path": lib.data_path(read.pod, read.kind, read.name),
	"params": gate_params(read, link),
} if {
	some [read, link] in crossings
	not clear_because(link)
	not advisory
}

# METADATA
# title: Data crosses sites over links that are not proved encrypted now (advisory binding)
# custom:
#   id: encryption.gate_advisory
#   text: >-
#     {kind} "{name}" would be read over link "{link}" (flow "{flow}"), which is not proved encrypted since
#     {since_ns:time}: {reason:words} (gate {state}, posture {posture}); the binding's gate is advisory
#   fix: see `sluicegate links --why {link}`
#   severity: advice
#   controls: ["NIST-800-53:CA-7"]
#   exceptable: false
#   unresolved: defer
#   needs: ["Node", "PersistentVolumeClaim"]
violations contains {
	"rule": "encryption.gate_advisory",
	"subject": lib.pod_name(read.pod),
	"path": lib.data_path(read.pod, read.kind, read.name),
	"params": gate_params(read, link),
} if {
	some [read, link] in crossings
	not clear_because(link)
	advisory
}

# METADATA
# title: Endpoints that a workload is configured with are encrypted
# description: >-
#   Only well-known variables are looked at, by scheme and host; facts mark clear-text schemes and switches
#   that turn certificate checks off. What is not marked as secure counts as insecure; an address of the
#   container itself is no network.
# custom:
#   id: encryption.endpoint
#   text: >-
#     variable {var} of container "{subject}" makes it talk to "{host}" (scheme "{scheme}") without checked
#     encryption
#   fix: >-
#     set {var} to an endpoint with an encrypted scheme such as https://, and leave certificate checks on
#   severity: high
#   controls: ["NIST-800-53:SC-8", "ISO-27001:A.8.24"]
#   exceptable: true
#   unresolved: deny
#   needs: []
violations contains {
	"rule": "encryption.endpoint",
	"subject": endpoint.container,
	"path": lib.field(pod.path, "containers"),
	"params": {"pod": pod.name, "var": endpoint.var, "scheme": endpoint.scheme, "host": endpoint.host},
} if {
	lib.bound
	some pod in input.facts.pods
	some endpoint in pod.endpoints
	not endpoint.insecure == false
	not endpoint.host in loopback
}

# METADATA
# title: Object stores that a custom resource names are encrypted
# custom:
#   id: encryption.store
#   text: >-
#     {path} names the object store "{host}" (scheme "{scheme}", bucket "{bucket}") without checked encryption
#   fix: use an encrypted scheme such as https:// in {path}, and leave certificate checks on
#   severity: high
#   controls: ["NIST-800-53:SC-8", "ISO-27001:A.8.24"]
#   exceptable: true
#   unresolved: deny
#   needs: []
violations contains {
	"rule": "encryption.store",
	"subject": store.name,
	"path": store.path,
	"params": {"scheme": store.scheme, "host": store.host, "bucket": store.bucket},
} if {
	lib.bound
	some store in input.facts.stores
	not store.insecure == false
	not store.host in loopback
}

# Reads of granted data over links that are not proved encrypted now, once per link. Usually empty.
crossings contains [read, link] if {
	some read in input.context.reads
	some link in read.links
	not link in proved
	read.from != read.to
	lib.granted(read.kind, read.name)
}

# Links whose encryption is required and proved by evidence that has not ended.
proved contains link if {
	some link, posture in input.context.links
	posture.encryption == "required"
	posture.state == "open"
	posture.posture == "encrypted"
	posture.reason != "never_keyed"
	fresh(posture)
}

# Why a link is not an encrypted one at all; undefined when it is.
clear_because(link) := "not_declared" if {
	not declared(link)
} else := "no_encryption_declared" if {
	object.get(input.context.links[link], "encryption", "none") != "required"
} else := "not_known_to_be_keyed" if {
	object.get(input.context.links[link], "state", "none") == "none"
	object.get(input.context.links[link], "generation", 0) == 0
} else := "never_keyed" if {
	object.get(input.context.links[link], "state", "none") == "none"
} else := "never_keyed" if {
	input.context.links[link].reason == "never_keyed"
}

declared(link) if is_object(input.context.links[link])

# Numbers, not texts: "99" is not later than "100". What is not all digits is no time: `to_number` would
# fail on it, and engines differ in what they make of a failing builtin.
fresh(posture) if {
	lib.digits(posture.fresh_until_ns)
	to_number(input.now) < to_number(posture.fresh_until_ns)
}

advisory if input.context.binding.gate == "advisory"

gate_params(read, link) := {
	"kind": read.kind,
	"name": read.name,
	"link": link,
	"flow": flow_name(read),
	"state": object.get(posture, "state", "closed"),
	"posture": object.get(posture, "posture", "unknown"),
	"reason": gate_reason(posture),
	"since_ns": gate_since(posture),
} if {
	posture := input.context.links[link]
}

# Evidence that was good but is too old: not proved since it ended.
stale(posture) if {
	posture.state == "open"
	posture.posture == "encrypted"
	not fresh(posture)
}

gate_reason(posture) := "stale_evidence" if {
	stale(posture)
} else := object.get(posture, "reason", "no_reason")

gate_since(posture) := object.get(posture, "fresh_until_ns", "0") if {
	stale(posture)
} else := object.get(posture, "since_ns", "0")

flow_name(read) := read.flow if {
	is_string(read.flow)
} else := ""

loopback := {"localhost", "127.0.0.1", "::1", "[::1]"}
