"""The HTTP API: its root, authentication, errors and schema. Each app brings its own router."""
