"""One policy trained by several processes, one a GPU: sharded weights, sharded contexts, sharded experts.

`run_stage_on_ranks` starts them and waits; everything else runs inside a rank. The mathematics is that of
`trainer/learning`: a step on any number of ranks is the step of one process, up to the order of sums.
"""
