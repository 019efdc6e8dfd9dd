"""Every error of the API as {"error": {code, message, field, fields}}."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from composer_web.api.auth import CsrfFailed, Forbidden
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError, taken

log = logging.getLogger(__name__)

UNSTORABLE = "a value cannot be stored ({}); take out control characters, halves of characters and numbers without end"
STATUS = {"invalid": 422, "forbidden": 403, "not_found": 404, "conflict": 409}


def install(api: NinjaAPI) -> None:
    def answer(
        request: HttpRequest,
        status: int,
        code: str,
        message: str,
        field: str = "",
        fields: dict[str, str] | None = None,
    ) -> HttpResponse:
        body = {"error": {"code": code, "message": message, "field": field, "fields": fields or {}}}
        return api.create_response(request, body, status=status)

    @api.exception_handler(UserError)
    def user_error(request: HttpRequest, error: UserError) -> HttpResponse:
        return answer(request, STATUS.get(error.code, 422), error.code, error.message, error.field, error.fields)

    @api.exception_handler(ValidationError)
    def validation(request: HttpRequest, error: ValidationError) -> HttpResponse:
        fields = {_path(item["loc"]): item["msg"] for item in error.errors}
        first = next(iter(fields), "")
        return answer(request, 422, "invalid", f"{first}: {fields.get(first, 'not understood')}", first, fields)

    @api.exception_handler(AuthenticationError)
    def unauthenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        return answer(
            request, 401, "unauthenticated", "send `Authorization: Bearer <token>` with a valid token, or log in"
        )

    @api.exception_handler(Forbidden)
    def forbidden(request: HttpRequest, error: Forbidden) -> HttpResponse:
        return answer(request, 403, "forbidden", str(error))

    @api.exception_handler(HttpError)
    def http(request: HttpRequest, error: HttpError) -> HttpResponse:
        return answer(request, error.status_code, "invalid", str(error))

    @api.exception_handler(CsrfFailed)
    def csrf(request: HttpRequest, error: CsrfFailed) -> HttpResponse:
        return answer(request, 403, "csrf", "the CSRF token is missing or wrong; reload the page, or use a token")

    @api.exception_handler(Http404)
    def missing(request: HttpRequest, error: Http404) -> HttpResponse:
        return answer(request, 404, "not_found", "there is nothing at this address")

    @api.exception_handler(ArtifactError)
    def artifact(request: HttpRequest, error: ArtifactError) -> HttpResponse:
        return answer(request, 503, "unavailable", str(error))

    @api.exception_handler(DataError)
    def data(request: HttpRequest, error: DataError) -> HttpResponse:
        return answer(request, 422, "invalid", UNSTORABLE.format(str(error).partition("\n")[0]))

    @api.exception_handler(UnicodeEncodeError)
    def half_a_character(request: HttpRequest, error: UnicodeEncodeError) -> HttpResponse:
        """JSON can write one half of a surrogate pair, which is no text."""
        return answer(
            request, 422, "invalid", UNSTORABLE.format(f"U+{ord(error.object[error.start]):04X} is no character")
        )

    @api.exception_handler(MultiPartParserError)
    def not_a_form(request: HttpRequest, error: MultiPartParserError) -> HttpResponse:
        message = f"the form cannot be read: {error}. Send multipart/form-data whose content type names its boundary"
        return answer(request, 400, "invalid", message)

    @api.exception_handler(RequestDataTooBig)
    def too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2**20
        remedy = "Send it in parts; a large suite can be a zip for /suites/{name}/import"
        return answer(request, 413, "too_large", f"the body has more than {most} MiB. {remedy}", "body")

    @api.exception_handler(SuspiciousOperation)
    def suspicious(request: HttpRequest, error: SuspiciousOperation) -> HttpResponse:
        """Too many parameters: what Django itself answers with 400."""
        return answer(request, 400, "invalid", f"{error} Send less.")

    @api.exception_handler(OperationalError)
    def database(request: HttpRequest, error: OperationalError) -> HttpResponse:
        log.warning("the API has no database: %s", error)
        return answer(request, 503, "unavailable", "Postgres does not answer; try again in a moment")

    @api.exception_handler(InterfaceError)
    def interface(request: HttpRequest, error: InterfaceError) -> HttpResponse:
        return answer(request, 503, "unavailable", "Postgres does not answer; try again in a moment")

    @api.exception_handler(IntegrityError)
    def integrity(request: HttpRequest, error: IntegrityError) -> HttpResponse:
        known = taken(error)
        return internal(request, error) if known is None else user_error(request, known)

    @api.exception_handler(Exception)
    def internal(request: HttpRequest, error: Exception) -> HttpResponse:
        log.exception("unhandled error in %s %s", request.method, request.path)
        return answer(request, 500, "internal", "this is our fault; the server's log has the details")


def _path(location: tuple[Any, ...]) -> str:
    """('body', 'payload', 'stage', 'steps') → 'stage.steps': the client never sees our argument names."""
    parts = [str(part) for part in location[1:]]
    return ".".join(part for part in parts if part not in ("payload", "config", "midtrain", "sft", "rl")) or str(
        location[0]
    )
