"""A study of a small pretrained model: `make study SIZE=smoke|full SEED=0`.

It takes SmolLM2-135M-Instruct through the product's API: import, demonstrations, SFT, evaluations and RL, on the procedural
family and on bugs planted in real packages, some of which no stage trains on. `plan` holds the sizes, `steps` names the
steps in order, `state` keeps what is done, and `report` writes the table. Every step looks first for what it would make,
so that a study that was stopped goes on where it was.
"""
