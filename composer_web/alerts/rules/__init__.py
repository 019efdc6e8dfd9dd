"""Alert rules: what they watch, the alerts that they open and resolve, and their notices."""
