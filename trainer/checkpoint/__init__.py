"""Step checkpoints on disk and resuming from them.

store.py   writes a checkpoint so that its folder is complete or absent
layout.py  names what lies in a checkpoint
in_use.py  marks those that somebody uses, which retention leaves alone
sharded.py reads what several ranks wrote
resume.py  loads the newest one and refuses those of another run, seed or architecture
"""
