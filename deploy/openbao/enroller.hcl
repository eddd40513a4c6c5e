# Enroller: hands out wrapped, one-use secret_ids for agents that the provisioner has created.
path "auth/enrol/role/+/role-id" {
  capabilities = ["read"]
}
path "auth/enrol/role/+/secret-id" {
  capabilities     = ["update"]
  min_wrapping_ttl = "1s"
  max_wrapping_ttl = "10m"
  allowed_parameters = {
    "cidr_list"         = []
    "token_bound_cidrs" = []
    "metadata"          = []
  }
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
