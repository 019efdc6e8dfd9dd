"""Services that a repository's tests need (Postgres, Redis, …), run inside the sandbox."""
