"""Tests rewritten into probes: they tell what the product gives, and decide nothing.

A probe is a test file in which assertions report both of their sides and literals may be others. Work, pristine checkout and
reference solution run the same probes, so what they report can be compared line by line. `variation` makes other literals,
`trees` reads JavaScript, Go and Rust by their grammars; `python`, `javascript`, `go` and `rust` rewrite one language each.
"""

from sandbox.grading.dynamic_analysis.probes.base import PROBES, Probes, language_of

__all__ = ["PROBES", "Probes", "language_of"]
