"""Tasks and suites: generation, import and export, curation, difficulty, controls and overlap checks."""
