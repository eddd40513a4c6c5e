# Gate: has its permit key certified and keeps it in sealed storage; touches no link key.
# One message under the newest version: no batch, no old version, no prehashed input.
path "transit/sign/permit-root" {
  capabilities = ["update"]
  allowed_parameters = {
    "input" = []
  }
  required_parameters = ["input"]
}
path "transit/keys/permit-root" {
  capabilities = ["read"]
}
path "kv/data/permits/*" {
  capabilities = ["create", "read", "update"]
}
path "kv/data/epoch" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
