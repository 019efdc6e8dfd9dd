"""Pages, tables and the gateway on large installations."""
