"""Detectors over the metrics of live runs (`core.detectors`): what to do about a run before its compute is wasted.

`series` reads the last points of all metrics that detectors need in one query; `signal` has conditions of the learning signal,
`efficiency` those of time and hardware. `registry` turns each into a detector of the product.
"""
