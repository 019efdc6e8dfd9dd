"""The embedded CPU engine: continuous batching for decoders behind the inference contract.

model.py, hf_moe.py, shape.py, factory.py   the forward pass, and decoders from a policy folder
batch.py, cache.py, attention.py, fused.py  what one step reads and computes
scheduler.py, runner.py, request.py         which requests a step serves
speculative.py, mtp_head.py                 draft tokens
kernels/                                    compiled loops
serving/                                    deployments, thread and server
"""
