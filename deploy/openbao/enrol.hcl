# What an enrolling agent may do, once: have its own certificate signed.
path "pki/sign/agent" {
  capabilities = ["update"]
  allowed_parameters = {
    "csr" = []
  }
  required_parameters = ["csr"]
}
