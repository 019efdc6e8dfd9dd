"""Dynamic analysis of submitted work: run it beside the tests and report findings. It never changes a verdict.

observing.py     what the product does at run time: files, generated code, hooks, processes
perturbation.py  answers to perturbed inputs of the tests' calls
overfit.py       visible tests that pass while hidden ones do not
probing.py       answers to what the tests ask and might have asked; `probes/` rewrites tests so that they tell
"""
