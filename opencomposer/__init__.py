"""The `opencomposer` command and a thin Python client of the JSON API.

Depends on httpx, Typer and pydantic only: it imports neither the rest of the product nor Django nor torch, and can be
installed alone with `pip install ./opencomposer`. `Client` sends requests to the paths that the API's OpenAPI description
lists; the commands under `opencomposer/commands/` are built on it.
"""

from opencomposer.client import Client
from opencomposer.errors import ApiError, Unreachable

__version__ = "0.1.0"
__all__ = ["ApiError", "Client", "Unreachable", "__version__"]
