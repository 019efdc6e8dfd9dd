"""Rules about tests: changed or weakened, their runner and framework, forged reports, instructions not followed.

Each module is a family of rules and lists them in `RULES`; `sandbox/grading/audit/registry.py` collects the families.
"""
