"""Mid-training: next-token prediction on code before reinforcement learning.

stage.py    the training stage
corpus/     reads, cleans and stores the documents of a corpus
packing.py  packs documents into rows of equal length
heldout.py  held-out loss by language and on a chosen codebase
"""
