"""Observations: hidden tests report what the product computes, and the host judges it.

`reports` holds the records and judges them, `python_tests` and `brace_tests` take the tests of a language apart. On these, `plan`
and `rewriting` find out with the oracle's work what a suite delivers, and `hiding` what its first run holds.
"""
