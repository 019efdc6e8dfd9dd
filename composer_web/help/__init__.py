"""Serves the documentation site under /help/. `scripts.docs` builds it (`make docs`, `make up`); nothing of it is committed."""
