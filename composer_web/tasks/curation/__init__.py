"""Curation of tasks: tags, splits, suites, instructions, with history and undo; the list with its filters and facets."""
