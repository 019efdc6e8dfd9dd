"""Pages and API of tasks, suites, curation, generators and imports."""
