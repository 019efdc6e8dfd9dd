"""The JSON API as typed calls: `client.runs.list(state="running")`. The nouns and verbs are generated (`oc/api/`)."""

from __future__ import annotations

import httpx

from oc.api import Api
from oc.transport import PAGE, SECONDS, ApiError, Transport, Unreachable

__all__ = ["PAGE", "ApiError", "Client", "Unreachable"]


class Client(Api):
    """One connection pool; use it as a context manager. `timeout` is the deadline of one request, in seconds."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        project: str = "",
        timeout: float = SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.transport = Transport(url, token, project=project, timeout=timeout, transport=transport)
        super().__init__(self.transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close()
