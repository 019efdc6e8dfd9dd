"""Services that a repository's tests need (Postgres, Redis, …), run inside the sandbox.

`table` lists them and what stands in for each; `local` sets them up and starts them with the tests.
"""

from sandbox.install.recipes.services.local import provide, stop
from sandbox.install.recipes.services.table import Service

__all__ = ["Service", "provide", "stop"]
