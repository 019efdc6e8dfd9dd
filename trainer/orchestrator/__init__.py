"""Scheduling decisions between dispatch and training, as pure functions.

admission.py        how many groups may start, from staleness and concurrency
curriculum.py       which tasks a run draws next
batch_scheduler.py  which accepted groups form the next batch
concurrency.py      in-flight limit, from the engine's load
validation.py       checks of engine answers and finished groups
circuit_breaker.py  when losses indicate a fault that a person must see
"""
