"""The control plane: decides, gates, and composes key management and evidence into one program."""
