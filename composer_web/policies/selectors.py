"""Reads of policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Max, OuterRef, Q, QuerySet

from composer_web.accounts.permissions import readable
from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import whole
from composer_web.policies.models import Checkpoint, Policy, PolicyKind
from composer_web.policies.services import real_path


@dataclass(frozen=True, slots=True)
class Weights:
    """A policy version: a folder in Hugging Face layout. Older checkpoints of a run lack whole weights until `whole` is asked."""

    policy: Policy
    version: int
    path: Path

    def whole(self) -> Path:
        """The folder, once its weights can be loaded: those of an older checkpoint are restored. Can take minutes for a large
        policy, so only workers ask. Raises UserError."""
        from trainer.weights.differences import DifferenceError, restore  # torch: only where weights are read

        try:
            restore(self.path)
        except DifferenceError as error:
            raise UserError("policy", str(error)) from error
        return self.path


def policies() -> QuerySet[Policy]:
    """For lists: parent, run and checkpoint counts come along."""
    rows = Policy.objects.select_related("parent", "produced_by", "endpoint").annotate(
        checkpoint_count=Count("checkpoints", filter=Q(checkpoints__removed_at=None)),
        newest_version=Max("checkpoints__version"),
    )
    return rows.order_by("-created_at")  # grouped queries have no order of their own


def get_policy(key: int | str) -> Policy:
    """By id or name. Raises NotFound."""
    query = policies()
    found = query.filter(pk=key).first() if isinstance(key, int) else query.filter(name=key).first()
    if found is None:
        raise NotFound("policy", key)
    return found


def lineage(policy: Policy) -> list[Policy]:
    """Ancestors from the oldest to `policy` itself."""
    chain: list[Policy] = []
    current: Policy | None = policy
    while current is not None and current not in chain:
        chain.append(current)
        current = current.parent
    return chain[::-1]


def on_disk(policy: Policy) -> QuerySet[Checkpoint]:
    """Checkpoints that a run can start from, newest first."""
    return policy.checkpoints.filter(removed_at=None).order_by("-version", "kind")


def only_toys() -> bool:
    """Whether every policy with weights is a toy, and there is one."""
    known = Policy.objects.filter(kind=PolicyKind.WEIGHTS).values_list("toy", flat=True).order_by().distinct()
    return list(known) == [True]


def references() -> list[str]:
    """Every starting point that `resolve` takes, newest policies first: each policy (its newest weights), then its
    versions on disk."""
    rows = Policy.objects.filter(kind=PolicyKind.WEIGHTS).annotate(
        on_disk=ArraySubquery(
            Checkpoint.objects.filter(policy=OuterRef("pk"), removed_at=None)
            .order_by("-version")
            .values("version")
            .distinct()
        )
    )
    found: list[str] = []
    for name, versions in rows.order_by("-created_at").values_list("name", "on_disk"):
        if versions:  # those of runs that wait or have no checkpoint yet have none
            found += [name, *(f"{name}@{version}" for version in versions if len(versions) > 1)]
    return found


def endpoints() -> list[str]:
    """Names of the policies behind endpoints."""
    return list(Policy.objects.filter(kind=PolicyKind.ENDPOINT).order_by("name").values_list("name", flat=True))


def check_plays(policy: Policy) -> None:
    """Its chat template must be one that can drive episodes. Raises UserError."""
    if policy.template_problem:
        raise UserError("policy", cannot_play(policy.name, policy.template_problem))


def cannot_play(name: str, problem: str) -> str:
    """What is said wherever episodes are to be played with such a template."""
    return f"{name!r} cannot play episodes: {problem}; then import the folder again, before training"


def resolve(reference: str) -> Weights:
    """`name` (newest complete weights) or `name@version`, of a project that the caller may read. Raises UserError that says
    what there is."""
    name, _, version = reference.partition("@")
    policies = Policy.objects.all()
    if (projects := readable()) is not None:
        policies = policies.filter(project__in=projects)
    policy = policies.filter(name=name).first()
    if policy is None:
        known = (
            ", ".join(policies.values_list("name", flat=True)[:8])
            or "none yet; import one on the page of policies"
        )
        what = f"there is no policy {name!r}" if name else "no policy is chosen"
        raise UserError("policy", f"{what}; there are: {known}")
    if policy.is_endpoint:
        raise UserError("policy", f"{name!r} is behind an endpoint: it can be evaluated; for this, weights are needed")
    rows = Checkpoint.objects.filter(policy=policy, removed_at=None).order_by("-version", "kind")
    if version:
        number = whole(version)
        if number is None:
            raise UserError("policy", f"{reference!r}: the version after @ must be a number")
        rows = rows.filter(version=number)
    for checkpoint in rows:
        path = real_path(checkpoint.path)
        if (path / "config.json").is_file():
            return Weights(policy, checkpoint.version, path)
    raise UserError("policy", f"{reference!r} has no weights on disk; its checkpoints were removed or never written")
