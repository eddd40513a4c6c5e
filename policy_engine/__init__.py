"""The control plane of Sluicegate: decides, gates, and composes key management and evidence into one program."""
