"""What a server of the contract answers when it cannot do what was asked; each becomes one HTTP error."""

from __future__ import annotations


class ServerError(Exception):
    """Base: `code` is for programs, the message for people and says what to do."""

    code = "internal"
    status = 500


class BadRequest(ServerError):
    code = "bad_request"
    status = 400


class UnknownDeployment(ServerError):
    code = "unknown_deployment"
    status = 404


class QueueFull(ServerError):
    code = "queue_full"
    status = 429


class DeadlinePassed(ServerError):
    code = "deadline"
    status = 504


class PausedTooLong(ServerError):
    code = "paused"
    status = 503


class Unavailable(ServerError):
    code = "unavailable"
    status = 503


class Displaced(Unavailable):
    """Its deployment went to another server while a request waited here: it waits there."""


class UnsupportedModel(ServerError):
    code = "unsupported_model"
    status = 400


class SyncFailed(ServerError):
    code = "sync_failed"
    status = 409
