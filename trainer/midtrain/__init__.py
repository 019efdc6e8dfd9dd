"""Mid-training: next-token prediction on code before reinforcement learning.

stage.py           the training stage
corpus/            reads, cleans and stores the documents of a corpus
synthetic.py       the mixture that needs no corpus: drills, library source, commits
mixture.py         mixes corpora by weight
packing.py         packs documents into rows of equal length
heldout.py         held-out loss by language and on a chosen codebase
initialization.py  random weights, and copying.py the copying circuit that a small Qwen3 starts with
"""
