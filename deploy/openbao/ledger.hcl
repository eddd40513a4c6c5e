# Ledger: signs checkpoints, nothing else.
path "transit/sign/ledger" {
  capabilities = ["update"]
}
path "transit/keys/ledger" {
  capabilities = ["read"]
}
path "kv/data/epoch" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
