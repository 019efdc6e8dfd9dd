"""Static analysis of a package: its sources, the functions worth changing, what tests refer to, and how to take code out."""

from sandbox.generators.analysis.package import Package
from sandbox.generators.analysis.reachability import Reachability
from sandbox.generators.analysis.targets import Target, find_targets, split_of

__all__ = ["Package", "Reachability", "Target", "find_targets", "split_of"]
