"""Pages and API of evaluations and releases."""
