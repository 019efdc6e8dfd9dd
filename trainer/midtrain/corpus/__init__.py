"""Text for mid-training from places of this machine, cleaned, and with its origin kept.

    documents.py   what a document is, and its language
    readers.py     folders, JSONL, Parquet, git repositories
    clean.py       duplicates, near-duplicates, and what lies too near to a suite of tasks
    store.py       a prepared corpus on disk: documents and their provenance

`python -m trainer.midtrain.corpus --out DIR --source PATH … [--against TASKS.jsonl]` prepares one.
"""
