# Provisioner (two people in production): creates link keys, identities, policy templates and PKI roles;
# never rotates, wraps or decrypts. Works after the root token is revoked.
path "links-e${epoch}/keys/+" {
  capabilities = ["create", "update", "read"]
  allowed_parameters = {
    "type"               = ["aes256-gcm96"]
    "exportable"         = ["false"]
    "auto_rotate_period" = ["0"]
  }
}
path "sys/policies/acl/sluicegate/*" {
  capabilities = ["create", "read", "update", "list"]
}
# Its own rights are not its own to write; an upgrade of them goes through generate-root-token.
path "sys/policies/acl/sluicegate/provisioner" {
  capabilities = ["read"]
}
path "sys/auth" {
  capabilities = ["read"]
}
path "sys/mounts" {
  capabilities = ["read"]
}
# Entities carry metadata only: rights come from the roles, never from here.
path "identity/entity/name/+" {
  capabilities = ["create", "read", "update"]
  allowed_parameters = {
    "metadata" = []
    "disabled" = []
  }
}
path "identity/entity-alias" {
  capabilities = ["create", "update"]
}
path "auth/enrol/role/+" {
  capabilities = ["create", "update"]
  allowed_parameters = {
    "token_policies"          = ["sluicegate/enrol"]
    "token_num_uses"          = ["1"]
    "token_ttl"               = []
    "token_no_default_policy" = ["true"]
    "token_bound_cidrs"       = []
    "secret_id_num_uses"      = ["1"]
    "secret_id_ttl"           = []
    "secret_id_bound_cidrs"   = []
  }
  # One use, from bound networks: what is left out would mean "unlimited". (This also refuses to read.)
  required_parameters = [
    "token_policies", "token_num_uses", "token_bound_cidrs",
    "secret_id_num_uses", "secret_id_ttl", "secret_id_bound_cidrs",
  ]
}
path "auth/enrol/role/+/role-id" {
  capabilities = ["read"]
}
path "auth/cert/certs/agent" {
  capabilities = ["create", "update"]
  allowed_parameters = {
    "certificate"             = []
    "token_policies"          = ["sluicegate/agent"]
    "token_period"            = []
    "token_no_default_policy" = ["true"]
    "token_bound_cidrs"       = []
  }
  required_parameters = ["token_policies", "token_no_default_policy", "token_bound_cidrs"]
}
path "auth/cert/crls/agents" {
  capabilities = ["create", "read", "update"]
}
path "pki/roles/agent" {
  capabilities = ["create", "read", "update"]
}
path "pki/cert/ca" {
  capabilities = ["read"]
}
path "pki/revoke" {
  capabilities = ["update"]
}
path "kv/data/epoch" {
  capabilities = ["create", "read", "update"]
}
# The way back when everything else is lost; still needs the unseal shares. (The endpoints without
# "-token" take no token and are off from OpenBao 2.5.3 on.)
path "sys/generate-root-token/attempt" {
  capabilities = ["read", "create", "update", "delete", "sudo"]
}
path "sys/generate-root-token/update" {
  capabilities = ["create", "update", "sudo"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
