# Ledger: signs checkpoints and publishes the last one, nothing else.
# One message under the newest version: no batch, no old version, no prehashed input.
path "transit/sign/ledger" {
  capabilities = ["update"]
  allowed_parameters = {
    "input" = []
  }
  required_parameters = ["input"]
}
path "transit/keys/ledger" {
  capabilities = ["read"]
}
path "kv/data/ledger/*" {
  capabilities = ["create", "read", "update"]
}
path "kv/data/epoch" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
