"""Sandboxes out of containers, through a Docker engine on this machine.

Each sandbox is two containers and two volumes that end with them:

    host     the asyncio program that uses `DockerBackend` (backend.py, sandbox.py, channel.py)
    keeper   container: trusted code only; holds the writable layer (a size-limited tmpfs volume) and reads the patch
    box      container: pid 1 is the agent of `namespaces/`, everything the policy under training does happens here;
             its home is an overlay volume of the environment's layers and the keeper's tmpfs

Both speak the frames of `namespaces/inside/protocol.py` over their standard input and output. They get the sources of what
they run the same way (`bundle.py`), so an image needs nothing of ours. The end of that stream ends a container, and
the engine removes it with its volumes: nothing stays after `kill -9` of the host.
"""
