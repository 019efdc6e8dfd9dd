"""What every command gets: the client, made when it is first used, and the output."""

from __future__ import annotations

from typing import TextIO

from opencomposer.client import Client
from opencomposer.output import Output
from opencomposer.settings import load_settings


class Session:
    """One invocation of the command line. `client` replaces the configured one."""

    def __init__(self, *, client: Client | None = None, out: TextIO | None = None) -> None:
        self.output, self.project = Output(out), ""
        self._client = client

    @property
    def api(self) -> Client:
        """Raises SettingsError."""
        if self._client is None:
            found = load_settings()
            self._client = Client(found.url, found.token, project=found.project)
        if self.project:
            self._client.choose_project(self.project)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
