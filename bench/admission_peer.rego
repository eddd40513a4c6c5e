# Independently written peer of bench/admission.py: what an admission policy on a plain OPA looks like. It is given
# the raw AdmissionReview, walks the object itself, and holds the estate as data (`data.estate`). Same questions,
# same verdicts as the shipped packs on the bench's mix; asserted there review by review.
package system

import rego.v1

main := {
	"apiVersion": "admission.k8s.io/v1",
	"kind": "AdmissionReview",
	"response": response,
}

response := {"uid": input.request.uid, "allowed": true} if count(deny) == 0

response := {
	"uid": input.request.uid,
	"allowed": false,
	"status": {"code": 403, "reason": "Forbidden", "message": concat("\n", sort(deny))},
} if {
	count(deny) > 0
}

manifest := input.request.object

template := manifest if input.request.kind.kind == "Pod"

template := manifest.spec.template if input.request.kind.kind in {"Job", "Deployment", "StatefulSet", "DaemonSet"}

template := manifest.spec.jobTemplate.spec.template if input.request.kind.kind == "CronJob"

pod := template.spec

annotations := object.get(template, ["metadata", "annotations"], {})

cluster := data.estate.cluster

binding := data.estate.bindings[input.request.namespace]

tenant := data.estate.tenants[binding.tenant]

containers := array.concat(
	object.get(pod, "containers", []),
	array.concat(object.get(pod, "initContainers", []), object.get(pod, "ephemeralContainers", [])),
)

# Where it may land: the site label in the node selector and in required affinity; nothing said means everywhere.
allowed_by_selector(_) if not pod.nodeSelector[cluster.site_label]

allowed_by_selector(label) if pod.nodeSelector[cluster.site_label] == label

affinity_terms := object.get(
	pod,
	["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"],
	[],
)

allowed_by_affinity(_) if count(affinity_terms) == 0

allowed_by_affinity(label) if {
	some term in affinity_terms
	every expression in object.get(term, "matchExpressions", []) { expression_allows(expression, label) }
}

expression_allows(expression, _) if expression.key != cluster.site_label

expression_allows(expression, label) if {
	expression.operator == "In"
	label in expression.values
}

expression_allows(expression, label) if {
	expression.operator == "NotIn"
	not label in expression.values
}

expression_allows(expression, _) if expression.operator == "Exists"

landing contains site if {
	some label, site in cluster.site_labels
	allowed_by_selector(label)
	allowed_by_affinity(label)
}

# What it declares: on the pod template, or as an attribute of an inline CSI volume.
statements(key) := {text |
	some text in [annotations[key]]
} | {text |
	some volume in object.get(pod, "volumes", [])
	text := volume.csi.volumeAttributes[key]
}

names(key) := {name |
	some text in statements(key)
	some part in split(text, ",")
	name := trim_space(part)
	name != ""
	name != "none"
}

malformed contains name if {
	some name in datasets | segments
	not regex.match(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`, name)
}

deny contains msg if {
	some name in malformed
	msg := sprintf("%q is no name of a dataset or segment", [name])
}

datasets := names("sluicegate.io/datasets")

segments := names("sluicegate.io/segments")

declared if count(statements("sluicegate.io/datasets")) > 0

declared if count(statements("sluicegate.io/segments")) > 0

readable contains [name, data.estate.datasets[name]] if {
	some name in datasets
	name in binding.datasets
}

readable contains [name, held] if {
	some name in segments
	name in binding.segments
	segment := data.estate.segments[name]
	held := {"sites": [segment.site], "regions": data.estate.datasets[segment.dataset].regions}
}

crossings contains [name, from, to] if {
	some [name, held] in readable
	some from in held.sites
	some to in landing
	from != to
}

flow_links(from, to) := data.estate.flows[from][to]

deny contains "namespace is not bound to a tenant" if not binding

deny contains msg if {
	some name in datasets
	not name in binding.datasets
	msg := sprintf("dataset %q is not granted to this namespace", [name])
}

deny contains msg if {
	some name in segments
	not name in binding.segments
	msg := sprintf("segment %q is not granted to this namespace", [name])
}

deny contains "declare what it reads: sluicegate.io/datasets or sluicegate.io/segments" if {
	binding.undeclared == "deny"
	not declared
}

deny contains "it can be placed on no declared site" if count(landing) == 0

deny contains msg if {
	some site in landing
	not data.estate.sites[site].region in binding.regions
	msg := sprintf("it may land in %v, outside the namespace's regions %v", [site, binding.regions])
}

deny contains msg if {
	some site in landing
	not data.estate.sites[site].jurisdiction in tenant.jurisdictions
	msg := sprintf("it may land in %v, outside the tenant's jurisdictions", [site])
}

deny contains msg if {
	some [name, held] in readable
	some site in landing
	region := data.estate.sites[site].region
	not region in held.regions
	msg := sprintf("%v may not be read from %v (%v)", [name, site, region])
}

deny contains msg if {
	some [name, from, to] in crossings
	not flow_links(from, to)
	msg := sprintf("%v: no flow from %v to %v", [name, from, to])
}

deny contains msg if {
	some [name, from, to] in crossings
	some link in flow_links(from, to)
	state := data.estate.links[link]
	not usable(state)
	msg := sprintf("%v would cross link %v, which is %v since %v", [name, link, state.reason, state.since])
}

usable(state) if {
	state.encryption == "required"
	state.state == "open"
	state.posture == "encrypted"
	time.now_ns() < state.fresh_until
}

# Variables whose value is an address by convention of the program that reads them.
addresses := {
	"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT", "S3_ENDPOINT_URL", "S3_URL", "MINIO_ENDPOINT",
	"MINIO_URL", "MLFLOW_TRACKING_URI", "MLFLOW_S3_ENDPOINT_URL", "WANDB_BASE_URL", "HF_ENDPOINT",
	"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
	"VAULT_ADDR", "BAO_ADDR", "REDIS_URL", "DATABASE_URL", "MONGODB_URI", "RABBITMQ_URL", "AMQP_URL",
	"ELASTICSEARCH_URL", "CLICKHOUSE_URL", "KAFKA_REST_URL", "TRITON_URL", "STORAGE_EMULATOR_HOST",
	"AZURE_STORAGE_ENDPOINT", "GCS_ENDPOINT", "FSSPEC_S3_ENDPOINT_URL", "LAKEFS_ENDPOINT",
	"LAKECTL_SERVER_ENDPOINT_URL", "ALLUXIO_MASTER_HOSTNAME", "JUICEFS_META_URL",
}

# Switches that turn encryption or its checks off, by the values that do so.
switched_on := {
	"OTEL_EXPORTER_OTLP_INSECURE", "MLFLOW_TRACKING_INSECURE_TLS", "S3_INSECURE", "MINIO_INSECURE",
	"VAULT_SKIP_VERIFY", "BAO_SKIP_VERIFY", "GIT_SSL_NO_VERIFY",
}

switched_off := {
	"S3_USE_HTTPS", "S3_VERIFY_SSL", "S3_USE_SSL", "MINIO_SECURE", "MINIO_USE_SSL", "AWS_S3_USE_SSL",
	"PYTHONHTTPSVERIFY", "NODE_TLS_REJECT_UNAUTHORIZED",
}

on := {"1", "true", "yes", "on", "t", "y"}

off := {"0", "false", "no", "off", "f", "n"}

clear := {"http://", "ftp://", "ws://", "redis://", "amqp://"}

loopback := {concat("", [scheme, host]) | some scheme in clear; some host in {"localhost", "127.0.0.1"}}

deny contains msg if {
	some container in containers
	some variable in object.get(container, "env", [])
	variable.name in addresses
	value := lower(variable.value)
	strings.any_prefix_match(value, clear)
	not strings.any_prefix_match(value, loopback)
	msg := sprintf("container %v: %v is not encrypted", [container.name, variable.name])
}

deny contains msg if {
	some container in containers
	some variable in object.get(container, "env", [])
	turns_off(variable.name, variable)
	msg := sprintf("container %v: %v turns encryption off", [container.name, variable.name])
}

turns_off(name, variable) if {
	name in switched_on
	lower(variable.value) in on
}

turns_off(name, variable) if {
	name in switched_off
	lower(variable.value) in off
}

# An image is [registry/]path[:tag][@sha256:hex], nothing else; kubelets and digest reports rely on it.
image_grammar := `^([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`

images contains [container.name, object.get(container, "image", "")] if some container in containers

images contains [volume.name, volume.image.reference] if some volume in object.get(pod, "volumes", [])

deny contains msg if {
	some [name, image] in images
	not regex.match(image_grammar, image)
	msg := sprintf("%v: the image reference cannot be read", [name])
}
