"""Other projects' formats of tasks and trajectories: what each can hold goes there and back unchanged; the rest is
named.

Tasks: `harbor`, `swebench`. Trajectories: `atif`, `inspect_log`, `messages`, through the common `record`. A new
format is one module.
"""
