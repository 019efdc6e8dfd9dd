"""Parsers of what agents, repositories and peers write, fed with whatever a coverage-guided fuzzer comes up with."""
