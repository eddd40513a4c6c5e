"""What clusters say: the implementations of the lookup port of facts."""
