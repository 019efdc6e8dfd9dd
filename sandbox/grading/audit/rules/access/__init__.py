"""Rules about what an attempt read and reached: history, hidden tests, other answers, the network, processes.

Each module is a family of rules and lists them in `RULES`; `sandbox/grading/audit/registry.py` collects the families.
"""
