# Agent: one template for all; the entity's metadata says which link and which name.
path "links-e${epoch}/decrypt/{{identity.entity.metadata.link}}" {
  capabilities = ["update"]
  # Both and nothing else: this also keeps batch_input out.
  allowed_parameters = {
    "ciphertext"      = []
    "associated_data" = []
  }
  required_parameters = ["ciphertext", "associated_data"]
}
path "pki/sign/agent" {
  capabilities = ["update"]
  allowed_parameters = {
    "csr" = []
  }
  required_parameters = ["csr"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
