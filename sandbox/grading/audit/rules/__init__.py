"""Rules of the audit, by what they watch.

`testing` looks at tests, runners and reports, `product` at the code that was written, `access` at what was read and reached.
`base` says what a rule is, `policy` bounds the severity that a rule may give, `matching` holds the patterns that rules share.
"""

from sandbox.grading.audit.rules.base import Basis, Finding, Hit, Rule, Severity, collect

__all__ = ["Basis", "Finding", "Hit", "Rule", "Severity", "collect"]
