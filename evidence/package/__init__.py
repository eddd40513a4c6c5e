"""Packages: a window of one scope's records that proves itself offline. Format: docs/package.md."""
