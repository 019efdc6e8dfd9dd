"""The JSON API, version 1: one router an app, described by OpenAPI at /api/v1/openapi.json."""

from __future__ import annotations

from functools import cached_property
from keyword import iskeyword
from typing import Any

from ninja import NinjaAPI
from ninja.errors import ValidationError, ValidationErrorContext
from ninja.operation import Operation

from composer_web.accounts.http.api import router as accounts
from composer_web.accounts.http.api import whoami
from composer_web.accounts.http.audit_api import router as audit
from composer_web.accounts.http.people_api import router as people
from composer_web.accounts.http.project_api import router as projects
from composer_web.alerts.http.api import router as alerts
from composer_web.api import errors
from composer_web.api.auth import needs
from composer_web.api.names import refuse_unknown
from composer_web.core.errors import worded
from composer_web.datasets.http.api import router as datasets
from composer_web.datasets.http.corpora_api import router as corpora
from composer_web.evals.http.api import router as evals
from composer_web.evals.http.release_api import router as releases
from composer_web.gateway.http.api import router as gateway
from composer_web.policies.http.api import router as policies
from composer_web.policies.http.endpoint_api import router as endpoints
from composer_web.policies.http.import_api import router as policy_imports
from composer_web.policies.http.measurement_api import router as measurements
from composer_web.policies.http.promotion_api import router as promotions
from composer_web.quotas.http.api import router as quotas
from composer_web.repositories.http.api import router as environments
from composer_web.review.http.annotation_api import router as annotations_router
from composer_web.review.http.api import drafts
from composer_web.review.http.api import queues as review_queues
from composer_web.rollouts.http.export_api import router as exports
from composer_web.rollouts.http.finding_api import router as findings
from composer_web.rollouts.http.fork_api import router as forks
from composer_web.rollouts.http.trajectory_api import groups, rollouts
from composer_web.runs.http.usage_api import router as runs
from composer_web.runs.launch.launch_api import sweep_router, templates
from composer_web.runs.reports.api import router as reports
from composer_web.studies.http.api import router as studies
from composer_web.system.api import router as ops
from composer_web.tasks.http.api import suites, tasks
from composer_web.tasks.http.curation_api import router as curation
from composer_web.ui.http.api import router as views
from composer_web.ui.http.former_api import former
from composer_web.ui.models import ListName


class Api(NinjaAPI):
    """Its description says of every operation what any refusal looks like, not only those that it lists itself, and
    names it by noun and verb: `runs.get`."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return f"{operation.view_func.__module__}.{operation.view_func.__name__}"

    def validation_error_from_error_contexts(self, error_contexts: list[ValidationErrorContext]) -> ValidationError:
        """With what was found, which ninja takes out."""
        made = super().validation_error_from_error_contexts(error_contexts)
        raw = [item for one in error_contexts for item in one.pydantic_validation_error.errors(include_url=False)]
        for item, before in zip(made.errors, raw, strict=True):
            item["msg"] = worded(before)
        return made

    def get_openapi_schema(self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None) -> Any:
        """The description; callers do not change it. No address of ours has a prefix with parameters."""
        assert not path_prefix and not path_params
        return self._schema

    @cached_property
    def _schema(self) -> Any:
        schema = super().get_openapi_schema()
        refusal = {
            "description": "A refusal",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}},
        }
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation["operationId"] = operation_name(path, operation["operationId"].rpartition(".")[2])
                operation["responses"].setdefault("default", refusal)
        return schema


def operation_name(path: str, function: str) -> str:
    """`/api/v1/runs/{run_id}` and `get_run` are `runs.get`: a verb does not repeat its own noun."""
    noun = path.removeprefix("/api/v1/").partition("/")[0].partition(".")[0]
    one = {"people": "person"}.get(noun) or (f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s"))
    verb, _, last = function.rpartition("_")
    return f"{noun}.{verb if verb and last in (noun, one) and not iskeyword(verb) else function}"


api = Api(
    title="OpenComposer",
    version="1",
    description='Everything that the pages show and do. Errors are {"error": {code, message, field, fields}}.',
    urls_namespace="api-1",
    auth=needs("read"),
    docs_url=None,
)
errors.install(api)
api.add_decorator(refuse_unknown)
api.add_router("/runs/views", former(ListName.RUNS), tags=["views"])
api.add_router("/rollouts/queries", former(ListName.ROLLOUTS), tags=["views"])
api.add_router("/runs", runs, tags=["runs"])
api.add_router("/views", views, tags=["views"])
api.add_router("/templates", templates, tags=["runs"])
api.add_router("/sweeps", sweep_router, tags=["runs"])
api.add_router("/studies", studies, tags=["runs"])
api.add_router("/reports", reports, tags=["runs"])
api.add_router("/rollouts", rollouts, tags=["rollouts"])
api.add_router("/forks", forks, tags=["rollouts"])
api.add_router("/exports", exports, tags=["rollouts"])
api.add_router("/groups", groups, tags=["rollouts"])
api.add_router("/findings", findings, tags=["findings"])
api.add_router("/review", review_queues, tags=["review"])
api.add_router("/annotations", annotations_router, tags=["review"])
api.add_router("/drafts", drafts, tags=["review"])
api.add_router("/corpora", corpora, tags=["corpora"])
api.add_router("/datasets", datasets, tags=["datasets"])
api.add_router("/tasks", tasks, tags=["tasks"])
api.add_router("/curation", curation, tags=["tasks"])
api.add_router("/suites", suites, tags=["tasks"])
api.add_router("/policies", policies, tags=["policies"])
api.add_router("/endpoints", endpoints, tags=["policies"])
api.add_router("/measurements", measurements, tags=["policies"])
api.add_router("/policy-imports", policy_imports, tags=["policies"])
api.add_router("/gateway", gateway, tags=["gateway"])
api.add_router("/promotions", promotions, tags=["policies"])
api.add_router("/evaluations", evals, tags=["evaluations"])
api.add_router("/releases", releases, tags=["evaluations"])
api.add_router("/environments", environments, tags=["environments"])
api.add_router("/whoami", whoami, tags=["tokens"])
api.add_router("/tokens", accounts, tags=["tokens"])
api.add_router("/projects", projects, tags=["projects"])
api.add_router("/people", people, tags=["people"])
api.add_router("/quotas", quotas, tags=["projects"])
api.add_router("/audit", audit, tags=["audit"])
api.add_router("/alerts", alerts, tags=["alerts"])
api.add_router("/health", ops, tags=["health"])
