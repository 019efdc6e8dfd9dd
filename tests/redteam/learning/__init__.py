"""Class B, what tests give away: work that learns an expectation from the tests that run beside it."""
