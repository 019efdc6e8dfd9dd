"""Isolation backends: `base.py` is the contract, `namespaces/` the default and `docker/` the other implementation.

`choice/` picks the backend of a process. This file imports nothing: the zygote loads it and must stay small
(`namespaces/zygote.py`).
"""
