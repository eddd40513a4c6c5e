# Conductor: rotates, wraps and destroys; never sees or opens a data key.
path "links-e${epoch}/keys/+" {
  capabilities = ["read"]
}
path "links-e${epoch}/keys/+/rotate" {
  capabilities = ["update"]
}
# Only the two minima: anything else here could make a key exportable.
path "links-e${epoch}/keys/+/config" {
  capabilities = ["update"]
  allowed_parameters = {
    "min_decryption_version" = []
    "min_encryption_version" = []
  }
}
path "links-e${epoch}/keys/+/trim" {
  capabilities = ["update"]
  allowed_parameters = {
    "min_available_version" = []
  }
}
# key_version stays out of the list: an old version could be used for a new wrap.
path "links-e${epoch}/datakey/wrapped/+" {
  capabilities = ["update"]
  allowed_parameters = {
    "bits"            = ["256"]
    "associated_data" = []
  }
  required_parameters = ["associated_data"]
}
path "kv/data/epoch" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
