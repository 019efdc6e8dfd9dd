"""Promotion of a policy to production: the gate, the canary and the way back."""
