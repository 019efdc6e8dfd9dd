"""Errors of servers that implement the contract; each maps to one HTTP error."""

from __future__ import annotations

from collections.abc import Mapping


class ServerError(Exception):
    """Base class: `code` and `details` are for programs, the message for people, with a remedy."""

    code = "internal"
    status = 500
    details: Mapping[str, int] = {}
    """Numbers of the error by name."""


class BadRequest(ServerError):
    code = "bad_request"
    status = 400


class ContextExceeded(BadRequest):
    """The prompt does not fit the deployment's context."""

    code = "context_exceeded"

    def __init__(self, *, tokens: int, context: int) -> None:
        super().__init__(
            f"prompt has {tokens} tokens, the deployment's context holds {context}; raise max_model_len, or shorten the prompt"
        )
        self.details = {"tokens": tokens, "context": context}


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
