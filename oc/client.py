"""The JSON API as typed calls. Answers are checked against the models that are generated from its description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from oc import models

PAGE = 100
SECONDS = 60.0

M = TypeVar("M", bound=BaseModel)
RunAction = Literal["start", "pause", "resume", "stop", "archive", "restore"]
Kept = Literal["/runs/views", "/rollouts/queries"]
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

    def __init__(
        self,
        url: str,
        token: str,
        *,
        project: str = "",
        timeout: float = SECONDS,
        transport: httpx.BaseTransport | None = None,
    ):
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

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # --- what every call does ------------------------------------------------------------------------------------

    def call(self, verb: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Decoded JSON, or None for an empty answer. Raises ApiError, Unreachable."""
        return self._read(path, lambda params: self._http.request(verb, path, params=params, json=body), query or {})

    def _read(self, path: str, send: Callable[[Json], httpx.Response], query: Mapping[str, Any]) -> Any:
        try:
            answer = send(_asked(query))
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} does not answer: {error}") from error
        return self._decoded(path, answer)

    def stream(self, path: str) -> Iterator[bytes]:
        """A file, as it comes. Raises ApiError, Unreachable."""
        try:
            with self._http.stream("GET", path) as answer:
                if answer.is_success:
                    yield from answer.iter_bytes()
                else:
                    answer.read()
                    self._decoded(path, answer)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} does not answer: {error}") from error

    def _decoded(self, path: str, answer: httpx.Response) -> Any:
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

    def exports(self, *, limit: int = PAGE) -> Iterator[models.ExportOut]:
        return self.pages("/exports", models.ExportOut, limit=limit)

    def export(self, pk: int) -> models.ExportOut:
        return models.ExportOut.model_validate(self.call("GET", f"/exports/{pk}"))

    def make_export(self, what: str, query: str, form: str) -> models.ExportOut:
        body = {"what": what, "query": query, "format": form}
        return models.ExportOut.model_validate(self.call("POST", "/exports", body=body))

    def export_file(self, pk: int) -> Iterator[bytes]:
        return self.stream(f"/exports/{pk}/file")

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

    def publish(self, body: Json) -> models.ReleaseOut:
        return models.ReleaseOut.model_validate(self.call("POST", "/releases", body=body))

    def run_release(self, benchmark: str, number: int, body: Json) -> models.EvaluationOut:
        answer = self.call("POST", f"/releases/{benchmark}/{number}/evaluations", body=body)
        return models.EvaluationOut.model_validate(answer)

    def check_release(self, benchmark: str, number: int) -> models.ReleaseOut:
        return models.ReleaseOut.model_validate(self.call("POST", f"/releases/{benchmark}/{number}/check"))

    # --- saved addresses -----------------------------------------------------------------------------------------

    def kept(self, path: Kept) -> list[models.ViewOut]:
        return TypeAdapter(list[models.ViewOut]).validate_python(self.call("GET", path))

    def keep(self, path: Kept, name: str, query: str, *, shared: bool = False) -> models.ViewOut:
        body = {"name": name, "query": query, "shared": shared}
        return models.ViewOut.model_validate(self.call("POST", path, body=body))

    def forget(self, path: Kept, pk: int) -> None:
        self.call("DELETE", f"{path}/{pk}")

    # --- repositories and the tasks made from them ---------------------------------------------------------------

    def repositories(self, *, limit: int = PAGE) -> Iterator[models.RepositoryOut]:
        return self.pages("/environments/repositories", models.RepositoryOut, limit=limit)

    def add_repository(self, body: Json) -> models.RepositoryOut:
        return models.RepositoryOut.model_validate(self.call("POST", "/environments/repositories", body=body))

    def upload_repository(self, filename: str, content: bytes, *, name: str = "") -> models.RepositoryOut:
        path, files = "/environments/repositories/archive", {"archive": (filename.rsplit("/", 1)[-1], content)}
        answer = self._read(path, lambda _: self._http.post(path, files=files, data={"name": name}), {})
        return models.RepositoryOut.model_validate(answer)

    def environment(self, name: str) -> models.EnvironmentOut:
        return models.EnvironmentOut.model_validate(self.call("GET", f"/environments/{name}"))

    def log(self, name: str) -> str:
        return models.LogOut.model_validate(self.call("GET", f"/environments/{name}/log")).text

    def cancel_build(self, name: str) -> models.EnvironmentOut:
        return models.EnvironmentOut.model_validate(self.call("POST", f"/environments/{name}/cancel"))

    def build_again(self, name: str) -> models.EnvironmentOut:
        return models.EnvironmentOut.model_validate(self.call("POST", f"/environments/{name}/again"))

    def tasks(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.TaskOut]:
        return self.pages("/tasks", models.TaskOut, limit=limit, query=filters)

    def task(self, slug: str) -> models.TaskDetail:
        return models.TaskDetail.model_validate(self.call("GET", f"/tasks/{slug}"))

    def generate(self, body: Json) -> models.Requested:
        return models.Requested.model_validate(self.call("POST", "/tasks/generators", body=body))

    def orders(self) -> list[models.OrderOut]:
        return TypeAdapter(list[models.OrderOut]).validate_python(self.call("GET", "/tasks/generators/orders"))

    def yields(self, *, limit: int = PAGE) -> Iterator[models.GeneratorRunOut]:
        return self.pages("/tasks/generators", models.GeneratorRunOut, limit=limit)

    def run_controls(self, suite: str) -> models.Requested:
        return models.Requested.model_validate(self.call("POST", f"/suites/{suite}/validate"))

    # --- curation ------------------------------------------------------------------------------------------------

    def open_suite(self, body: Json) -> models.SuiteOut:
        return models.SuiteOut.model_validate(self.call("POST", "/curation/suites", body=body))

    def next_task(self, **filters: Any) -> models.NextOut:
        return models.NextOut.model_validate(self.call("GET", "/curation/next", query=filters))

    def review_task(self, slug: str, body: Json) -> models.ReviewsOut:
        return models.ReviewsOut.model_validate(self.call("POST", f"/curation/tasks/{slug}/reviews", body=body))

    def edit_instruction(self, slug: str, text: str) -> models.MadeOut:
        answer = self.call("POST", f"/curation/tasks/{slug}/instruction", body={"instruction": text})
        return models.MadeOut.model_validate(answer)

    def change_tasks(self, body: Json) -> models.BatchOut:
        return models.BatchOut.model_validate(self.call("POST", "/curation/bulk", body=body))

    def undo(self, batch: str) -> models.BatchOut:
        return models.BatchOut.model_validate(self.call("POST", f"/curation/undo/{batch}"))

    def changes(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.TaskChangeOut]:
        return self.pages("/curation/changes", models.TaskChangeOut, limit=limit, query=filters)

    def compare_versions(self, slug: str, before: int, after: int) -> list[models.DiffPartOut]:
        answer = self.call("GET", f"/curation/tasks/{slug}/compare", query={"before": before, "after": after})
        return TypeAdapter(list[models.DiffPartOut]).validate_python(answer)

    def disagreements(self) -> list[models.DisagreementOut]:
        return TypeAdapter(list[models.DisagreementOut]).validate_python(self.call("GET", "/curation/disagreements"))

    # --- review of rollouts --------------------------------------------------------------------------------------

    def queues(self, *, limit: int = PAGE) -> Iterator[models.QueueOut]:
        return self.pages("/review", models.QueueOut, limit=limit)

    def queue(self, name: str) -> models.QueueOut:
        return models.QueueOut.model_validate(self.call("GET", f"/review/{name}"))

    def next_item(self, name: str) -> models.NextItemOut:
        return models.NextItemOut.model_validate(self.call("GET", f"/review/{name}/next"))

    def label_rollout(self, name: str, rollout: int, answers: Mapping[str, Any]) -> models.LabelOut:
        body = {"rollout": rollout, "answers": answers}
        return models.LabelOut.model_validate(self.call("POST", f"/review/{name}/labels", body=body))

    def agreement(self, name: str) -> list[models.AgreementOut]:
        return TypeAdapter(list[models.AgreementOut]).validate_python(self.call("GET", f"/review/{name}/agreement"))

    def label_disagreements(self, name: str) -> list[models.LabelDisagreementOut]:
        answer = self.call("GET", f"/review/{name}/disagreements")
        return TypeAdapter(list[models.LabelDisagreementOut]).validate_python(answer)

    def label_rewards(self, name: str, question: str) -> list[models.RewardOut]:
        answer = self.call("GET", f"/review/{name}/rewards", query={"question": question})
        return TypeAdapter(list[models.RewardOut]).validate_python(answer)

    def exclude(self, name: str, body: Json) -> models.CountOut:
        return models.CountOut.model_validate(self.call("POST", f"/review/{name}/exclude", body=body))


def _asked(query: Mapping[str, Any]) -> Json:
    return {name: value for name, value in query.items() if value not in (None, "")}
