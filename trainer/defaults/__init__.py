"""Defaults that fit: values for `auto` settings from the model, the tasks and the hardware, and a preflight check.

`facts` says what is known, `opening` counts the tokens of an opening prompt, `derive` turns facts into numbers with a
reason each, and `preflight` refuses a configuration that cannot learn. Imports neither torch nor transformers, so the
form can derive while it is filled in.
"""

from trainer.defaults.derive import Choice, Derived, derive
from trainer.defaults.facts import Facts, Model, Shape, read_shape
from trainer.defaults.preflight import Problem, preflight

__all__ = ["Choice", "Derived", "Facts", "Model", "Problem", "Shape", "derive", "preflight", "read_shape"]
