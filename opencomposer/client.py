"""A thin client of the JSON API: one connection pool, deadlines, retries, errors, pages and files.

Paths are written as the OpenAPI description at `/api/v1/openapi.json` lists them, without `/api/v1`, and their placeholders
are filled from keyword arguments: `client.get("/runs/{run_id}", run_id=3)`. Answers are decoded JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from opencomposer.errors import ApiError, Unreachable

PAGE = 100
"""Items requested at a time by `Client.pages`."""
REQUEST_SECONDS = 60.0
"""Deadline of one request."""
RETRY_WAITS = (0.2, 1.0)
"""Seconds before the second and the third attempt."""
RETRY_STATUSES = (502, 503, 504)

Json = Mapping[str, Any]
Upload = Path | tuple[str, bytes]
"""A file on disk, or a file name and its content."""


class Sink(Protocol):
    """Destination of a download, for example an open binary file."""

    def write(self, data: bytes, /) -> object: ...


class Refusal(BaseModel):
    """The `error` object of a refused request."""

    code: str = ""
    message: str = ""
    field: str = ""
    fields: dict[str, str] = {}


class Refused(BaseModel):
    """Body of every refusal."""

    error: Refusal = Refusal()


class Client:
    """Requests to one installation with one token. Use it as a context manager, or call `close`.

    `project` is the short name of the project that requests concern; empty: the server decides. `timeout` is the deadline
    of one request, in seconds. GET requests, and requests whose connection failed, are tried three times; a change that
    reached the server is never repeated. Every method raises ApiError when the API refuses and Unreachable when no API
    answers.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        project: str = "",
        timeout: float = REQUEST_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        # Redirects are not followed: the token goes to the configured address and nowhere else.
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            transport=transport,
            follow_redirects=False,
        )
        self.url = url.rstrip("/")
        self.choose_project(project)

    def choose_project(self, slug: str) -> None:
        """Later requests concern this project; empty: the server decides."""
        self._http.params = httpx.QueryParams({"project": slug} if slug else {})

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, /, params: Json | None = None, **parts: Any) -> Any:
        return self.request("GET", path, params=params, **parts)

    def post(
        self,
        path: str,
        /,
        body: Any = None,
        *,
        params: Json | None = None,
        files: Mapping[str, Upload | list[Path]] | None = None,
        **parts: Any,
    ) -> Any:
        """With `files`, `body` holds the other fields of a multipart form."""
        return self.request("POST", path, params=params, body=body, files=files, **parts)

    def put(self, path: str, /, body: Any = None, **parts: Any) -> Any:
        return self.request("PUT", path, body=body, **parts)

    def patch(self, path: str, /, body: Any = None, **parts: Any) -> Any:
        return self.request("PATCH", path, body=body, **parts)

    def delete(self, path: str, params: Json | None = None, /, **parts: Any) -> Any:
        return self.request("DELETE", path, params=params, **parts)

    def request(
        self,
        method: str,
        path: str,
        /,
        *,
        params: Json | None = None,
        body: Any = None,
        files: Mapping[str, Upload | list[Path]] | None = None,
        **parts: Any,
    ) -> Any:
        """Decoded JSON, or None for an empty answer."""
        with ExitStack() as open_files:
            attached = [
                (name, _opened(one, open_files))
                for name, given in (files or {}).items()
                for one in (given if isinstance(given, list) else [given])
            ]
            request = self._http.build_request(
                method,
                _filled(path, parts),
                params=_present(params),
                json=None if attached or body is None else body,
                data=body if attached else None,
                files=attached or None,
            )
            return self._decoded(self._answered(request))

    def pages(
        self, path: str, /, *, limit: int | None = None, params: Json | None = None, **parts: Any
    ) -> Iterator[dict[str, Any]]:
        """Items of a paginated list, newest first, fetched page by page as they are consumed; at most `limit`."""
        query = dict(params or {})
        left = limit
        while left is None or left > 0:
            query["limit"] = PAGE if left is None else min(left, PAGE)
            page = self.get(path, query, **parts)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            query["before"] = page["next"]
            if page["next"] is None:
                return

    def download(self, path: str, to: Sink, /, params: Json | None = None, **parts: Any) -> None:
        """Write a file to `to` as it arrives."""
        request = self._http.build_request("GET", _filled(path, parts), params=_present(params))
        answer = self._answered(request, stream=True)
        try:
            if not answer.is_success:
                answer.read()
                self._decoded(answer)
            for part in answer.iter_bytes():
                to.write(part)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} stopped answering: {error}") from error
        finally:
            answer.close()

    def _answered(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        for wait in (*RETRY_WAITS, None):
            try:
                answer = self._http.send(request, stream=stream)
            except httpx.HTTPError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                if wait is None or not (unsent or request.method == "GET"):
                    raise Unreachable(
                        f"{self.url} does not answer ({error}): check that the product runs there (`make up`), or "
                        "give its address with `opencomposer login URL`"
                    ) from error
            else:
                if wait is None or request.method != "GET" or answer.status_code not in RETRY_STATUSES:
                    return answer
                answer.close()
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _decoded(self, answer: httpx.Response) -> Any:
        if answer.is_success and not answer.content:
            return None
        try:
            data = answer.json()
        except ValueError as error:
            raise Unreachable(
                f"{answer.request.url} answered {answer.status_code} without JSON: is {self.url} the product's address?"
            ) from error
        if answer.is_success:
            return data
        try:
            found = Refused.model_validate(data).error
        except ValidationError:
            found = Refusal()
        message = found.message or f"the server answered {answer.status_code}"
        raise ApiError(answer.status_code, found.code, message, found.field, found.fields)


def _filled(path: str, parts: Json) -> str:
    return path.format_map({name: quote(str(value), safe="") for name, value in parts.items()})


def _present(params: Json | None) -> dict[str, Any]:
    """Query parameters without those that are None."""
    return {name: value for name, value in (params or {}).items() if value is not None}


def _opened(file: Upload, stack: ExitStack) -> tuple[str, BinaryIO | bytes]:
    return (file.name, stack.enter_context(file.open("rb"))) if isinstance(file, Path) else file
