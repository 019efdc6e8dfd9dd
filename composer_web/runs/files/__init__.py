"""What ended runs and evaluations keep on disk, and its deletion.

used_checkpoints.py which policy versions are used now
owners.py           groups and rollouts of a run or an evaluation
kept.py             which trajectories stay, and why
blobs.py            what a group has in the artifact store
amounts.py          what there is, and what would go
refusals.py         what still needs the files of a run
services.py         requests
checkpoints.py, versions.py, trajectories.py  the deletion of each kind, resumable after a kill
deleting.py         one deletion from its start to its end
retention.py        trajectories past their days
"""
