"""Decisions between dispatch and training, as pure functions, and the loop in one process that runs on them.

window.py       which accepted groups become the next batch
concurrency.py  how many groups may be in flight, from the engine's own load
checks.py       what an engine's answer and a group must be before they count
breaker.py      when losses are a fault that a person must see
journal.py      the group buffer on disk
local.py        admission, group buffer and batches in this process
"""
