r"""Facts: what a review says, as data. Pure: object + lookup -> facts. This page is the shape (`v` = 1).

    facts(request, lookup, *, cluster) -> dict        # request = AdmissionReview.request
    old_facts(request, lookup, *, cluster) -> dict    # the same for request.oldObject (judge "new minus old")
    request_for(manifest, *, namespace="default") -> request     # a manifest as if it were created

Never raises on any JSON; what cannot be read is named in `unreadable`. The result is in the canonical
domain: ASCII keys, integers below 2**53, no floats, valid Unicode. Values of env, args, commands and Secrets
never enter. Keys marked ? are absent when there is nothing to say; lists and maps are always there.

    {"v": 1,
     "subject": {"cluster": str, "namespace": str,      # "" for cluster-scoped objects
         "group": str, "version": str, "kind": str,     # of the object ("PodExecOptions" for exec)
         "name": str, "generateName"?: str,             # name "" with generateName is normal
         "operation": "CREATE|UPDATE|DELETE|CONNECT",
         "resource": str,                               # plural, "" when the review has none
         "subresource": str,                            # "" | "ephemeralcontainers" | "binding" | "exec" ...
         "user": str, "groups": [str], "dryRun": bool},
     "pods": [{
         "path": str,                                   # "spec" for a Pod, "spec.template.spec" for a Job
         "name": str,                                   # the path with names for numbers: "jobs[work].spec"
         "images": [
             {"container": str, "role": str, "ref": str,
              "registry": str, "repository": str,       # normalised: docker.io and library/ filled in
              "tag"?: str, "digest"?: "sha256:<hex>"}
             | {"container": str, "role": str, "ref": str, "invalid": "why"}],
             # role: container | init | ephemeral | volume (OCI image volume; container = the volume's name)
             #       | field (an image that a custom resource names outside a PodSpec, e.g. TrainJob trainer)
         "placement": {
             "nodeName"?: str,
             "nodeSelector": {label: str},
             "required": [[{"key": str, "op": "In|NotIn|Exists|DoesNotExist|Gt|Lt", "values": [str],
                            "field"?: true}]],          # OR of terms, each an AND; field: matchFields
             "nodes"?: {node: {label: str}}},           # node-restriction.kubernetes.io/* labels by lookup
         "volumes": [{"name": str, "type": str,         # "persistentVolumeClaim" | "csi" | "nfs" | ...
                      "claim"?: str, "driver"?: str, "server"?: str, "path"?: str}],
         "datasets": [{"name": str, "path": str, "via"?: str}],  # declared by annotation, CSI, claim
         "segments": [{"name": str, "path": str, "via"?: str}],  # path: the field that declares it
             # via: what that field names, when an object behind it holds the declaration
         "declared": bool,                              # false: declares nothing. "none" is a declaration
         "endpoints": [{"container": str, "var": str, "scheme": str, "host": str, "insecure": bool}],
             # well-known variables only. insecure: http/ftp/... scheme, or a switch that turns TLS checks off
         "hostNetwork": bool, "hostPaths": [str], "priorityClass"?: str,
         "accelerators": {"nvidia.com/gpu": int}}],     # extended resources, for the pod as a whole
     "images": [str],                                   # every image it would run, as written, sorted, unique
     "exposure": {"external": bool, "serviceType"?: str, "externalIPs"?: [str], "hosts"?: [str]},
     "stores": [{"path": str, "name": str,              # object stores of custom resources (Flux Bucket)
                 "provider": str, "bucket": str, "scheme": str, "host": str, "region": str,
                 "insecure": bool}],
     "embedded": [{"path": str, "images": [str]}],      # manifests inside strings: judged when created
     "target"?: {"pod": str, "node"?: str, "known": bool, "labels": {}, "datasets": [str], "segments": [str]},
             # pods/exec, attach, portforward, proxy, binding, eviction: the Pod that is meant
     "unresolved": [{"what": str, "name": str, "path": str}],  # Node, PersistentVolumeClaim, Pod, ...Runtime
     "unreadable": [{"path": str, "why": str}]}         # => the built-in denial facts.unreadable

* DELETE: `pods` is empty (nothing starts; deletes are judged by delete rules), `subject` is complete.
* CONNECT: `pods` is empty, `target` says what is known about the pod.
* pods/binding: `pods` holds the bound Pod's facts (by lookup) with `nodeName` set to the target node.
* A malformed image also appears in `unreadable` with its path.
* "declared": annotation `sluicegate.io/datasets: none` says "reads no governed data".
"""

from policy_engine.facts.extract import facts, old_facts, only_metadata_differs, request_for
from policy_engine.facts.lookup import Claim, Lookup, NoLookup

__all__ = ["Claim", "Lookup", "NoLookup", "facts", "old_facts", "only_metadata_differs", "request_for"]
