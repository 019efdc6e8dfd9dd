"""Charts of runs: series, axes, panels, annotations, timing, and comparisons of runs."""
