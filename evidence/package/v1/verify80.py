"""Second path: python3 verify80.py PACKAGE.zip TRUST.json (standard library, and `openssl` for signatures)."""

# fmt: off
# ruff: noqa
# mypy: ignore-errors
import base64, hashlib, json, os, subprocess, sys, tempfile, zipfile
def sha(*parts): return hashlib.sha256(b"".join(parts)).digest()
def need(ok, what):
    if not ok: sys.exit("NOT VERIFIED: " + what)
def signed(key, message, signature):
    with tempfile.TemporaryDirectory() as d:
        p = [os.path.join(d, n) for n in ("key", "msg", "sig")]
        for path, data in zip(p, (bytes.fromhex("302a300506032b6570032100") + key, message, signature)):
            with open(path, "wb") as f: f.write(data)
        run = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", p[0], "-rawin", "-in", p[1], "-sigfile", p[2]]
        return subprocess.run(run, capture_output=True).returncode == 0
def append(stack, size, leaf):                      # RFC 6962: one node for each 1 bit of the size
    while size & 1: leaf, size = sha(b"\x01", stack.pop(), leaf), size >> 1
    stack.append(leaf)
def root(stack):
    out = stack[-1] if stack else sha(b"")
    for node in reversed(stack[:-1]): out = sha(b"\x01", node, out)
    return out
def inclusion(leaf, index, size, proof):            # RFC 9162 section 2.1.3.2
    fn, sn = index, size - 1
    need(0 <= index < size, "tick outside the log")
    for node in proof:
        need(sn > 0, "tick proof too long")
        if fn & 1 or fn == sn:
            leaf = sha(b"\x01", node, leaf)
            while not fn & 1 and fn: fn, sn = fn >> 1, sn >> 1
        else: leaf = sha(b"\x01", leaf, node)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0, "tick proof too short")
    return leaf
def head(scope, proof, size, log_root):             # map proof, then tick proof, to the checkpoint's root
    key, n, r = sha(scope.encode()), int(proof["size"]), bytes.fromhex(proof["root"])
    node, bits = sha(b"\x02", key, n.to_bytes(8, "big"), r), int.from_bytes(key, "big")
    need(len(proof["map_proof"]) == 256, "map proof length")
    for h, sib in enumerate(map(bytes.fromhex, proof["map_proof"])):
        node = sha(b"\x03", sib, node) if bits >> h & 1 else sha(b"\x03", node, sib)
    need(node == bytes.fromhex(proof["map_root"]), "map proof of scope " + scope)
    leaf = sha(b"\x00", node, int(proof["tick"]).to_bytes(8, "big"))
    got = inclusion(leaf, int(proof["tick"]), size, [bytes.fromhex(x) for x in proof["tick_proof"]])
    need(got == log_root, "tick proof of scope " + scope)
    return n, r
z, trust = zipfile.ZipFile(sys.argv[1]), json.load(open(sys.argv[2]))
names = z.namelist()
need(len(set(names)) == len(names) and all(i.compress_type == 0 for i in z.infolist()), "container")
data = {n: z.read(n) for n in names}
keys = {k.split("+")[0] + k.split("+")[1]: base64.b64decode(k.split("+", 2)[2])[1:] for k in trust["keys"]}
env = json.loads(data["attestation.dsse.json"])     # DSSE: the signature is over PAE(type, payload)
body, kind = base64.b64decode(env["payload"], validate=True), env["payloadType"].encode()
pae, sig = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body), base64.b64decode(env["signatures"][0]["sig"])
need(any(signed(k, pae, sig) for k in keys.values()), "envelope signature by a trusted key")
said = json.loads(body)
need(said["subject"][0]["digest"]["sha256"] == sha(data["manifest.json"]).hex(), "manifest digest")
listed = {m["name"]: m["sha256"] for m in json.loads(data["manifest.json"])["members"]}
need(set(listed) == set(names) - {"manifest.json", "attestation.dsse.json"}, "members listed")
for n in listed: need(sha(data[n]).hex() == listed[n], "digest of " + n)
text, block = data["checkpoint.txt"].decode().split("\n\n")
_, name, raw = block.strip().split(" ")             # C2SP signed note: dash, name, base64(key id || signature)
raw = base64.b64decode(raw, validate=True)
need(signed(keys.get(name + raw[:4].hex(), b""), text.encode() + b"\n", raw[4:]), "checkpoint signature")
origin, size, log = text.split("\n")
need(origin == trust["origin"] == said["predicate"]["origin"], "origin")
for rng in said["predicate"]["ranges"]:
    sid, m = rng["scope_id"], int(rng["begin"])
    need(trust["scopes"].get(rng["scope"]) == sid, "scope id of " + rng["scope"])
    proofs = json.loads(data["proofs/%s.json" % sid])
    first = proofs["begin"] and head(sid, proofs["begin"], int(size), base64.b64decode(log))
    stack = [bytes.fromhex(h) for h in proofs["frontier"]["nodes"]]
    need((m, root(stack)) == (first or (0, sha(b""))) and len(stack) == bin(m).count("1"), "begin of the range")
    for line in map(json.loads, data["records/%s.ndjson" % sid].split(b"\n")[:-1]):
        part = lambda p: sha(bytes.fromhex(line[p + "_salt"]), line[p].encode()) if p in line else bytes.fromhex(line[p + "_digest"])
        append(stack, m, sha(b"\x00\x01", part("header"), part("public"), part("sensitive")))
        m += 1
    end = head(sid, proofs["end"], int(size), base64.b64decode(log))
    need((m, root(stack)) == end and m == int(rng["end"]), "whole range of scope " + rng["scope"])
    print("verified: scope %s, records %s to %d, checkpoint of size %s" % (rng["scope"], rng["begin"], m, size))
print("Signatures, manifest, proofs and the whole range hold. Tables and report: `sluicegate evidence verify`.")
