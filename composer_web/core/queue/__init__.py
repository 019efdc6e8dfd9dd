"""Background work: Celery tasks that are safe to deliver twice.

queues.py      the names of the queues
outbox.py      messages that leave only after their transaction committed
work.py        declares a task: its queue, its time limit or its lease
leases.py      one owner per resource, with a fencing token against former owners
heartbeats.py  rows of the processes that are alive
samples.py     what workers use of their machines: written, thinned, deleted
usage.py       the same read: now, over time, and by run
overview.py    live processes and leases, for the home and system pages
"""
