# Ledger: signs checkpoints and publishes the last one, nothing else.
path "transit/sign/ledger" {
  capabilities = ["update"]
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
