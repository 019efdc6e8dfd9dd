"""What every call of the client stands on: the connection, its deadline and second tries, errors, pages and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter

PAGE = 100
"""Items that are asked for at a time."""
SECONDS = 60.0
"""Deadline of one request."""
TRIES = 3
"""For what only looks, and for connections that were never made."""
WAITS = (0.2, 1.0)
"""Seconds before the second and the third try."""
AGAIN = (502, 503, 504)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Json = Mapping[str, Any]
Upload = Path | tuple[str, bytes]
"""A file, or a name and what it holds."""


class Omit(Enum):
    """A field that is not sent: the server's default counts, and what is there stays. None is sent as null."""

    OMIT = "omit"


OMIT = Omit.OMIT


class Sink(Protocol):
    """Where a file goes: an open binary file, say."""

    def write(self, data: bytes, /) -> object: ...


class ApiError(Exception):
    """The API refused. `message` says what was found and what to do, `field` the first wrong field as a dotted path (empty:
    the whole request), `fields` all of them with their messages."""

    def __init__(self, status: int, code: str, message: str, field: str, fields: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field, self.fields = status, code, message, field, dict(fields)


class Unreachable(Exception):
    """Nothing that speaks this API answers at the address. The message names it."""


class Transport:
    """One connection pool to one installation, as one person, about one project."""

    def __init__(
        self, url: str, token: str, *, project: str, timeout: float, transport: httpx.BaseTransport | None
    ) -> None:
        # Redirects are not followed: a token goes to the address that was configured and nowhere else.
        self._http = httpx.Client(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            params={"project": project} if project else None,
            timeout=timeout,
            transport=transport,
            follow_redirects=False,
        )
        self.url = url

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Json | None = None,
        body: Any = None,
        files: Mapping[str, Upload] | None = None,
    ) -> Any:
        """Decoded JSON, or None for an empty answer. With files the body is their form. Raises ApiError, Unreachable."""
        with ExitStack() as open_files:
            attached = {name: _opened(one, open_files) for name, one in (files or {}).items()}
            form = plain(body) if attached else None
            request = self._http.build_request(
                method,
                path,
                params=_asked(query or {}),
                json=None if attached or body is None else plain(body),
                data=form,
                files=attached or None,
            )
            return self._decoded(path, self._answered(request))

    def ask(
        self,
        answer: type[T],
        method: str,
        path: str,
        *,
        query: Json | None = None,
        body: Any = None,
        files: Mapping[str, Upload] | None = None,
    ) -> T:
        """The answer as its type. Raises ApiError, Unreachable."""
        return adapter(answer).validate_python(self.send(method, path, query=query, body=body, files=files))

    def ask_if(self, answer: type[T], method: str, path: str, *, query: Json | None = None) -> T | None:
        """The same where the answer may be null."""
        found = self.send(method, path, query=query)
        return None if found is None else adapter(answer).validate_python(found)

    def pages(
        self, model: type[M], path: str, *, query: Json, limit: int | None, before: int | None = None
    ) -> Iterator[M]:
        """Items of a list, newest first, page by page as they are wanted; at most `limit`, below the id `before`."""
        left = limit
        while left is None or left > 0:
            asked = PAGE if left is None else min(left, PAGE)
            page = self.send("GET", path, query={**query, "limit": asked, "before": before})
            for item in page["items"]:
                yield model.model_validate(item)
            left = None if left is None else left - len(page["items"])
            before = page["next"]
            if before is None:
                return

    def fetch(self, path: str, to: Sink, *, query: Json | None = None) -> None:
        """A file, written as it comes. Raises ApiError, Unreachable."""
        request = self._http.build_request("GET", path, params=_asked(query or {}))
        answer = self._answered(request, stream=True)
        try:
            if not answer.is_success:
                answer.read()
                self._decoded(path, answer)
            for part in answer.iter_bytes():
                to.write(part)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} broke off: {error}") from error
        finally:
            answer.close()

    def _answered(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """What may be asked twice without harm is: a look at what is there, and what never reached the server."""
        for wait in (*WAITS, None):
            try:
                answer = self._http.send(request, stream=stream)
            except httpx.HTTPError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                if wait is None or not (unsent or request.method == "GET"):
                    raise Unreachable(f"{self.url} does not answer: {error}") from error
            else:
                if wait is None or request.method != "GET" or answer.status_code not in AGAIN:
                    return answer
                answer.close()
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _decoded(self, path: str, answer: httpx.Response) -> Any:
        if answer.is_success and not answer.content:
            return None
        try:
            data = answer.json()
        except ValueError as error:
            raise Unreachable(
                f"{self.url}{path} answered {answer.status_code} and no JSON: is this the product's address?"
            ) from error
        if answer.is_success:
            return data
        found = data.get("error", {}) if isinstance(data, dict) else {}
        message = found.get("message") or f"the server answered {answer.status_code}"
        raise ApiError(
            answer.status_code, found.get("code", ""), message, found.get("field", ""), found.get("fields") or {}
        )


class Noun:
    """The operations of one noun."""

    def __init__(self, api: Transport) -> None:
        self._api = api


def part(value: object) -> str:
    """A value as one part of a path."""
    return quote(str(value), safe="")


def given(**fields: Any) -> dict[str, Any]:
    """Those of these fields that are sent."""
    return {name: value for name, value in fields.items() if value is not OMIT}


def plain(value: Any) -> Any:
    """As JSON has it. Of a model, what was said of it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, date) else value


def adapter(kind: type[T]) -> TypeAdapter[T]:
    found: TypeAdapter[T] = _adapter(kind)
    return found


_adapter: Callable[[Any], Any] = lru_cache(maxsize=None)(TypeAdapter)
"""Made once a type."""


def _asked(query: Json) -> dict[str, Any]:
    return {name: plain(value) for name, value in query.items() if value is not None}


def _opened(file: Upload, stack: ExitStack) -> tuple[str, BinaryIO | bytes]:
    return (file.name, stack.enter_context(file.open("rb"))) if isinstance(file, Path) else file
