"""Detectors over the metrics of runs (`core.detectors`): what to do about a run before its compute is wasted.

`series` reads the first and last points of all metrics that detectors need in one query; `signal` has conditions of the learning
signal, `efficiency` those of time and hardware, `remedies` what to do where that depends on the measurement. `registry` turns
each into a detector of the product: home, alert rules, the run's page, API and command line all read it;
`insights` is what they see in one run.
"""
