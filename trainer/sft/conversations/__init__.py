"""Conversations of a person's own to fine-tune on: read, cleaned, with their origin kept, and as token streams.

    conversation.py   what a conversation is, and what is known of one that does not fit
    readers.py        OpenAI-style messages in JSONL, JSON and Parquet, ATIF trajectories, folders of them
    store.py          a prepared dataset on disk: conversations without copies and without tasks of suites, and their origin
    fingerprint.py    whether two policies have the same tokenizer and template
    streams.py        the tokens that a policy would have read and sampled, with a loss on what it said alone

The control plane prepares datasets (`composer_web/datasets`), also from rollouts; `run_sft` reads them.
"""
