"""Errors of the client and of the command line, and the exit status of each."""

from __future__ import annotations

from collections.abc import Mapping


class ClientError(Exception):
    """Base of every error that a command reports without a traceback. `status` is the exit status, `code` its short name."""

    status = 1
    code = "failed"


class ApiError(ClientError):
    """The API refused a request.

    `message` says what was found and what to do. `field` is the dotted path of the first wrong field (empty: the whole
    request) and `fields` maps every wrong field to its message. `http_status` is the status of the response.
    """

    def __init__(self, http_status: int, code: str, message: str, field: str, fields: Mapping[str, str]) -> None:
        super().__init__(message)
        self.http_status, self.code, self.message = http_status, code, message
        self.field, self.fields = field, dict(fields)


class Failed(ClientError):
    """The work that a command waited for ended without a result. The message gives the reason."""


class UsageError(ClientError):
    """The command line asks for something impossible. The message says what to write instead."""

    status, code = 2, "usage"


class SettingsError(ClientError):
    """The address, token or settings file is missing or malformed. The message names it and the remedy."""

    status, code = 2, "settings"


class Unreachable(ClientError):
    """No server that speaks this API answers at the address, or it stopped answering. The message names the address."""

    status, code = 3, "unreachable"


class WaitTimeout(ClientError):
    """The work did not end within `--timeout`. It continues on the server."""

    status, code = 3, "timeout"
