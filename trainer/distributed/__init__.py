"""Distributed training of one policy, one process per GPU: sharded weights, contexts and experts.

`run_stage_on_ranks` starts the processes and waits; everything else runs inside a rank. The mathematics is that of
`trainer/learning`: a step on any number of ranks equals the step of one process, up to summation order.
"""
