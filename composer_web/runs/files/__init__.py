"""What ended runs and evaluations keep on disk, and its deletion.

used_checkpoints.py which policy versions are used now
kept.py             which trajectories stay, and why
amounts.py          what there is, and what would go
refusals.py         what still needs the files of a run
services.py         requests
checkpoints.py, versions.py, trajectories.py  the deletion of each kind, resumable after a kill
deleting.py         one deletion from its start to its end
retention.py        trajectories past their days
"""
