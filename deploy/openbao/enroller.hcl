# Enroller: hands out wrapped, one-use secret_ids for agents that the provisioner has created.
path "auth/enrol/role/+/role-id" {
  capabilities = ["read"]
}
path "auth/enrol/role/+/secret-id" {
  capabilities     = ["update"]
  min_wrapping_ttl = "1s"
  max_wrapping_ttl = "10m"
  # Networks, uses and life are the role's: nothing may be said here.
  denied_parameters = {
    "*" = []
  }
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
