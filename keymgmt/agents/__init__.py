"""The agent at one end of a link. Small on purpose: no web framework, no database, no KMS client library."""
