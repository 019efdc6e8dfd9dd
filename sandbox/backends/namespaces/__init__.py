"""Sandboxes out of Linux namespaces, with the standard library only; as root or as an ordinary user.

Four kinds of process, from the outside in:

    host        the asyncio program that uses `NamespacesBackend` (backend.py, sandbox.py, channel.py)
    zygote      one per host process: tiny, single-threaded, empty environment; forks sandboxes (zygote.py)
    supervisor  one per sandbox: outside its pid namespace, owns the writable layer (launcher.py, supervisor.py)
    agent       pid 1 inside: runs commands and file operations (inside/)

Everything from the zygote inwards is forked, never executed, so an environment needs no interpreter of ours.
"""
