"""Recipes: scripts that chain whole training stages into a policy.

`base_policy` makes the shipped toy policy from scratch (`make base-policy`).
"""
