"""What sandboxes ask of Linux: system calls, mounts, cgroups, the filter of system calls, users and their ids.

Standard library only, and nothing of the rest of this backend: other backends send these sources into containers.
"""
