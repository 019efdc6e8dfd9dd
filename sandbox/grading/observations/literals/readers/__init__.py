"""Grammars read into the nodes of `nodes.py`."""
