"""Embedded mode: everything on one machine, started and stopped by one command."""
