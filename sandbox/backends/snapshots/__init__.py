"""Snapshots kept by digest: one portable file each, unpacked where sandboxes start from them.

archive.py   a snapshot as a stream of bytes, and back
locks.py     file locks that end with their process
store.py     the folder of archives and unpacked trees, leases, collection
"""

from sandbox.backends.snapshots.store import Collected, Lease, SnapshotStore

__all__ = ["Collected", "Lease", "SnapshotStore"]
