"""Object storage under the weight store: a folder or an S3 bucket behind one protocol, with a lease for the writer.

base.py    the protocol `Blobs`
folder.py  a folder, on this machine or shared
bucket.py  an S3 bucket
lease.py   the right to write to a bucket, held by one process at a time
s3.py      the connection, and its errors by name
"""

from trainer.weights.storage.base import Blobs
from trainer.weights.storage.bucket import BucketBlobs
from trainer.weights.storage.folder import FolderBlobs

__all__ = ["Blobs", "BucketBlobs", "FolderBlobs"]
