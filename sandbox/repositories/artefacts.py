"""Names of caches and build products that work on a checkout leaves behind and no checkout needs."""

from __future__ import annotations

CACHES = {
    "__pycache__": "byte code", ".mypy_cache": "a cache of types", ".pytype": "a cache of types", ".pyre": "a cache of types",
    ".dmypy.json": "a cache of types", ".pytest_cache": "a cache of test runs", ".ruff_cache": "a cache of a linter",
    ".hypothesis": "a database of examples", ".tox": "environments with copies", ".nox": "environments with copies",
    ".eggs": "built packages", "htmlcov": "a coverage report", ".coverage": "coverage data", "coverage.xml": "coverage data",
    ".testmondata": "recorded test runs", ".ipynb_checkpoints": "copies of notebooks", ".parcel-cache": "build products",
    ".nyc_output": "coverage data", ".turbo": "build products", ".gradle": "build products", ".ccls-cache": "an index of symbols",
    ".clangd": "an index of symbols", ".idea": "local history", ".history": "local history",
}  # fmt: skip
"""Names that no checkout needs → what they hold."""
PRODUCTS = (".pyc", ".pyo", ".class", ".whl", ".egg", ".orig", ".rej", ".swp", ".pyi.cache")
