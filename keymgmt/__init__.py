"""Rotation of link keys: custody, conductor, agents and drivers. Knows `evidence`, never `policy_engine`."""
