"""Rules about the code that an attempt leaves: special cases, stubs, answers looked up, adaptive code, claims about it.

Each module is a family of rules and lists them in `RULES`; `sandbox/grading/audit/registry.py` collects the families.
"""
