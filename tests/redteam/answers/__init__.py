"""Class A: the agent looks for the answer instead of working it out."""
