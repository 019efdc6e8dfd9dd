"""Observations: hidden tests report what the product computes, and the host judges it.

`base` holds the records, `values` the plain data that crosses the sandbox's border, `judge` the expressions that are
evaluated outside. Each language rewrites its own tests (`python` for pytest and unittest).
"""
