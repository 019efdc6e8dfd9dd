"""Launching the ranks of a run with torchrun, on one node or on several that may join and leave.

launch.py      starts the ranks and serves as their source and sink until they end
nodes.py       how the nodes of a run find each other
rendezvous.py  torchrun's c10d rendezvous for a changing set of nodes
node_agent.py  `python -m trainer.distributed.elastic.node_agent`: runs ranks on a further node
parent.py      ends a process together with its parent
"""
