"""The installation recipe for Python repositories: requirements, interpreter, virtual environment, test run, repair."""
