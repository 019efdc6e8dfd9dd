"""What runs inside a sandbox as pid 1: commands in a shell that keeps its state, file operations, and search.

Forked from the zygote or sent into a container, so the standard library must do.
"""
