"""The JSON API as typed calls. Answers are checked against the models that are generated from its description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from oc import models

PAGE = 100
SECONDS = 60.0

M = TypeVar("M", bound=BaseModel)
RunAction = Literal["start", "pause", "resume", "stop", "archive", "restore"]
Json = dict[str, Any]


class ApiError(Exception):
    """The API refused. `code` and `fields` are those of its answer."""

    def __init__(self, status: int, code: str, message: str, fields: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.fields = status, code, message, dict(fields)


class Unreachable(Exception):
    """Nothing that speaks this API answers at the address. The message names it."""


class Client:
    """One connection pool; use it as a context manager."""

    def __init__(self, url: str, token: str, *, timeout: float = SECONDS, transport: httpx.BaseTransport | None = None):
        # Redirects are not followed: a token goes to the address that was configured and nowhere else.
        self._http = httpx.Client(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            transport=transport,
            follow_redirects=False,
        )
        self.url = url

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # --- what every call does ------------------------------------------------------------------------------------

    def call(self, verb: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Decoded JSON, or None for an empty answer. Raises ApiError, Unreachable."""
        asked = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        try:
            answer = self._http.request(verb, path, params=asked, json=body)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} does not answer: {error}") from error
        if answer.status_code == 204:
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
        raise ApiError(answer.status_code, found.get("code", ""), message, found.get("fields") or {})

    def pages(self, path: str, model: type[M], *, limit: int, query: Mapping[str, Any] | None = None) -> Iterator[M]:
        """Items of a list, newest first, page by page; at most `limit`."""
        before: int | None = None
        while limit > 0:
            page = self.call("GET", path, query={**(query or {}), "limit": min(limit, PAGE), "before": before})
            for item in page["items"]:
                yield model.model_validate(item)
            limit -= len(page["items"])
            before = page["next"]
            if before is None:
                return

    # --- runs ----------------------------------------------------------------------------------------------------

    def runs(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.RunOut]:
        return self.pages("/runs", models.RunOut, limit=limit, query=filters)

    def run(self, pk: int) -> models.RunDetail:
        return models.RunDetail.model_validate(self.call("GET", f"/runs/{pk}"))

    def act(self, pk: int, action: RunAction) -> models.RunDetail:
        return models.RunDetail.model_validate(self.call("POST", f"/runs/{pk}/{action}"))

    def label(self, pk: int, *, tags: Sequence[str] | None = None, notes: str | None = None) -> models.RunDetail:
        given = {name: value for name, value in (("tags", tags), ("notes", notes)) if value is not None}
        return models.RunDetail.model_validate(self.call("PATCH", f"/runs/{pk}", body=given))

    def read(self, text: str) -> Json:
        """The configuration that a YAML, TOML or JSON text holds, defaults filled in."""
        return models.ParsedOut.model_validate(self.call("POST", "/runs/read", body={"text": text})).config

    def presets(self) -> list[models.PresetOut]:
        return TypeAdapter(list[models.PresetOut]).validate_python(self.call("GET", "/runs/presets"))

    def templates(self) -> list[models.TemplateOut]:
        return TypeAdapter(list[models.TemplateOut]).validate_python(self.call("GET", "/templates"))

    def validate(self, config: Json, *, parent: int | None = None) -> models.Checked:
        """The dry run: what this configuration would run. Makes nothing."""
        answer = self.call("POST", "/runs/validate", body=config, query={"parent": parent})
        return models.Checked.model_validate(answer)

    def create(self, config: Json, *, start: bool = False, parent: int | None = None) -> models.RunDetail:
        query = {"start": "true" if start else None, "parent": parent}
        return models.RunDetail.model_validate(self.call("POST", "/runs", body=config, query=query))

    def config_text(self, pk: int, form: str) -> str:
        return models.TextOut.model_validate(self.call("GET", f"/runs/{pk}/config", query={"format": form})).text

    def metrics(
        self, pk: int, names: Sequence[str] = (), *, after: int | None = None, buckets: int | None = None
    ) -> models.MetricsOut:
        query = {"name": list(names) or None, "after": after, "buckets": buckets}
        return models.MetricsOut.model_validate(self.call("GET", f"/runs/{pk}/metrics", query=query))

    def events(self, pk: int, *, after: int = 0) -> list[models.EventOut]:
        answer = self.call("GET", f"/runs/{pk}/events", query={"after": after, "limit": PAGE})
        return TypeAdapter(list[models.EventOut]).validate_python(answer)

    # --- sweeps --------------------------------------------------------------------------------------------------

    def preview_sweep(self, config: Json, fields: Json, mode: str) -> models.PreviewOut:
        body = {"config": config, "fields": fields, "mode": mode}
        return models.PreviewOut.model_validate(self.call("POST", "/sweeps/preview", body=body))

    def create_sweep(self, config: Json, fields: Json, mode: str, *, start: bool = False) -> models.SweepOut:
        body = {"config": config, "fields": fields, "mode": mode, "start": start}
        return models.SweepOut.model_validate(self.call("POST", "/sweeps", body=body))

    def sweep(self, pk: int) -> models.SweepDetail:
        return models.SweepDetail.model_validate(self.call("GET", f"/sweeps/{pk}"))

    # --- everything else -----------------------------------------------------------------------------------------

    def rollouts(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.RolloutOut]:
        return self.pages("/rollouts", models.RolloutOut, limit=limit, query=filters)

    def rollout(self, pk: int) -> models.RolloutOut:
        return models.RolloutOut.model_validate(self.call("GET", f"/rollouts/{pk}"))

    def turns(self, pk: int, *, tokens: bool = False) -> Iterator[models.TrajectoryPage]:
        """The trajectory, a page of turns at a time."""
        offset: int | None = 0
        while offset is not None:
            query = {"offset": offset, "limit": PAGE, "tokens": "true" if tokens else None}
            page = models.TrajectoryPage.model_validate(self.call("GET", f"/rollouts/{pk}/trajectory", query=query))
            yield page
            offset = page.next

    def suites(self, *, limit: int = PAGE) -> Iterator[models.SuiteOut]:
        return self.pages("/suites", models.SuiteOut, limit=limit)

    def suite(self, name: str) -> models.SuiteOut:
        return models.SuiteOut.model_validate(self.call("GET", f"/suites/{name}"))

    def policies(self, *, limit: int = PAGE) -> Iterator[models.PolicyOut]:
        return self.pages("/policies", models.PolicyOut, limit=limit)

    def policy(self, name: str) -> models.PolicyDetail:
        return models.PolicyDetail.model_validate(self.call("GET", f"/policies/{name}"))

    def evaluations(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.EvaluationOut]:
        return self.pages("/evaluations", models.EvaluationOut, limit=limit, query=filters)

    def evaluation(self, pk: int) -> models.EvaluationOut:
        return models.EvaluationOut.model_validate(self.call("GET", f"/evaluations/{pk}"))

    def evaluate(self, body: Json) -> models.EvaluationOut:
        return models.EvaluationOut.model_validate(self.call("POST", "/evaluations", body=body))

    def cancel_evaluation(self, pk: int) -> models.EvaluationOut:
        return models.EvaluationOut.model_validate(self.call("POST", f"/evaluations/{pk}/cancel"))

    def releases(self, *, limit: int = PAGE) -> Iterator[models.ReleaseOut]:
        return self.pages("/releases", models.ReleaseOut, limit=limit)

    def release(self, benchmark: str, number: int) -> models.ReleaseOut:
        return models.ReleaseOut.model_validate(self.call("GET", f"/releases/{benchmark}/{number}"))

    def standings(self, benchmark: str, number: int) -> models.BoardOut:
        return models.BoardOut.model_validate(self.call("GET", f"/releases/{benchmark}/{number}/standings"))
