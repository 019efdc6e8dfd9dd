"""Reports over the whole product: health, reconciler, Prometheus metrics, sandbox fidelity, the home and system pages.

It imports the other apps; none of them imports it.
"""
