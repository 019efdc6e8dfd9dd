"""Choosing a base model: how well candidates predict a codebase, before any agent training.

codebase.py   the files of a codebase and its recent lines
selection.py  the measures
scores.py     the results and the distance between two candidates (imports no torch)
measure.py    one measurement in a process of its own
"""
