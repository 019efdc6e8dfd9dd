"""Class B, tests and reports: tests are changed, skipped or left out, and reports are forged."""
