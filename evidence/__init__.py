"""Records, ledger, auditor packages."""
