"""Gateway errors in OpenAI's format: {"error": {message, type, param, code}}."""

from __future__ import annotations

from typing import Any

from django.http import JsonResponse
from pydantic import ValidationError


class GatewayError(Exception):
    """Base class. The message is for people and includes the remedy, `code` is for programs, `param` names the
    field."""

    status = 500
    kind = "server_error"
    code = "internal"

    def __init__(self, message: str, *, param: str | None = None, code: str = "") -> None:
        super().__init__(message)
        self.message, self.param = message, param
        self.code = code or self.code

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> JsonResponse:
        answer = JsonResponse(self.body(), status=self.status)
        if isinstance(self, RateLimited):
            answer["Retry-After"] = str(self.seconds)
        return answer


class BadRequest(GatewayError):
    """Includes unparsable requests and unsupported features."""

    status, kind, code = 400, "invalid_request_error", "invalid_value"


class ContextExceeded(BadRequest):
    """The prompt does not fit the model's context. Clients match the beginning of this message."""

    def __init__(self, *, context: int, tokens: int, exact: bool = True) -> None:
        super().__init__(
            f"This model's maximum context length is {context} tokens. However, your messages resulted in "
            f"{'' if exact else 'at least '}{tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


class Unauthenticated(GatewayError):
    status, kind, code = 401, "authentication_error", "invalid_api_key"


class NotAllowed(GatewayError):
    status, kind, code = 403, "permission_error", "scope_missing"


class UnknownModel(GatewayError):
    status, kind, code = 404, "invalid_request_error", "model_not_found"


class RateLimited(GatewayError):
    status, kind, code = 429, "rate_limit_error", "rate_limit_exceeded"

    def __init__(self, message: str, *, seconds: int) -> None:
        super().__init__(message)
        self.seconds = seconds


class NothingPromoted(GatewayError):
    status, kind, code = 503, "server_error", "nothing_promoted"


class Unavailable(GatewayError):
    """The engine, the endpoint or an internal service does not respond in time."""

    status, kind, code = 503, "server_error", "unavailable"


def from_validation(error: ValidationError) -> BadRequest:
    """Error that describes the first invalid field."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return BadRequest(f"{where}: {first['msg']}", param=where)
