"""Which literals of JavaScript, Go and Rust tests are no input of the product, by the grammars of these languages."""

from sandbox.grading.observations.literals.values import Shown, shown

__all__ = ["Shown", "shown"]
