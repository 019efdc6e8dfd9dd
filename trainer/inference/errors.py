"""Errors of servers that implement the contract; each maps to one HTTP error."""

from __future__ import annotations


class ServerError(Exception):
    """Base class: `code` is for programs, the message for people, with a remedy."""

    code = "internal"
    status = 500


class BadRequest(ServerError):
    code = "bad_request"
    status = 400


class ContextExceeded(BadRequest):
    """The prompt does not fit the deployment's context."""

    code = "context_exceeded"


class NoMemory(BadRequest):
    """The machine cannot hold what a deployment asks for."""

    code = "no_memory"


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


class DeploymentMoved(Unavailable):
    """The deployment moved to another server while a request waited here; the request now waits there."""


class UnsupportedModel(ServerError):
    code = "unsupported_model"
    status = 400


class SyncFailed(ServerError):
    code = "sync_failed"
    status = 409
