"""Verifiers: hidden test suites and hidden calls, run in a clean sandbox and judged outside it.

suite.py        runs a suite, with canaries among its tests
calls.py        runs hidden calls of one function
judging.py      turns a run's report into a result per test and one cause
canary_pool.py  the canaries of a task, made once and stored
languages.py    how the tests of a framework are rewritten
admission.py    which verifiers may give rewards, decided from the bundle
entropy.py      bits that work would have to guess
helpers.py      product files that hidden tests assert with
batch.py        several runs from one loaded interpreter, for measurements
"""
