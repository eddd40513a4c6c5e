"""The gate: what is known of a link (posture), and who may keep its path open (permits)."""
