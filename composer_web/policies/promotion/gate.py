"""The gate of a channel: what a policy version must have shown in evaluations before it is promoted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.evals.models import Evaluation, Release
from composer_web.live.hints import hint
from composer_web.core.errors import UserError
from composer_web.policies.models import Gate, Policy, Promotion
from composer_web.tasks.models import Suite
from trainer.config.renamed import with_new_names

MAX_RULES = 20


class GateRule(BaseModel):
    """The newest finished evaluation on a suite, or on the newest release of a benchmark, must be good enough."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str = Field(default="", max_length=80)
    benchmark: str = Field(default="", max_length=60)
    measure: Literal["pass1", "best"] = "pass1"
    min_score: float | None = Field(default=None, ge=0, le=1, description="The score is at least this")
    max_drop: float | None = Field(
        default=None, ge=0, le=1, description="The score is at most this much below the promoted version's"
    )
    samples: int = Field(
        default=1,
        ge=1,
        le=64,
        description="The evaluation has at least so many passes; of more than one, best of K is of at most so many",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, given: Any) -> Any:
        return with_new_names(cls, given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _about_one(self) -> Self:
        if bool(self.suite) == bool(self.benchmark):
            raise ValueError("a rule names a suite or a benchmark")
        if self.min_score is None and self.max_drop is None:
            raise ValueError("a rule has a min_score, a max_drop, or both")
        return self

    @property
    def about(self) -> str:
        return self.suite or self.benchmark


class Outcome(BaseModel):
    """What a rule saw. `score` is None when there is no evaluation to go by."""

    model_config = ConfigDict(frozen=True)

    rule: GateRule
    ok: bool
    score: float | None
    evaluation: int | None
    why: str
    remedy: str = Field(default="", description="What to do when it does not hold")
    missing: str = Field(default="", description="The version that has no evaluation to go by")
    under_way: int | None = Field(default=None, description="An evaluation of that version that has not ended yet")


_RULES = TypeAdapter(list[GateRule])


def rules(channel: str) -> list[GateRule]:
    """Those in force; none when nobody has set any."""
    gate = Gate.objects.filter(channel=channel).first()
    return _RULES.validate_python(gate.rules) if gate else []


@transaction.atomic
def set_rules(*, channel: str, wanted: Sequence[object], actor: User | None = None) -> Gate:
    """Replace the rules of a channel. Raises UserError that names the rule and its fault."""
    try:
        found = _RULES.validate_python(list(wanted))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = first["loc"]
        number = int(place[0]) + 1 if place and isinstance(place[0], int) else 0
        field = ".".join(map(str, place[1:])) or "rules"
        raise UserError("rules", f"rule {number}, {field}: {first['msg']}") from error
    if len(found) > MAX_RULES:
        raise UserError("rules", f"a gate has at most {MAX_RULES} rules, not {len(found)}")
    for rule in found:
        _exists(rule)
    gate, _ = Gate.objects.select_for_update().get_or_create(channel=channel)
    before, gate.rules = gate.rules, [rule.model_dump() for rule in found]
    gate.updated_by = actor
    gate.full_clean()
    gate.save()
    hint("promotion")
    audit(actor=actor, action="gate.change", target=f"channel:{channel}", before=before, after=gate.rules)
    return gate


def _exists(rule: GateRule) -> None:
    if rule.suite and not Suite.objects.filter(name=rule.suite).exists():
        raise UserError("rules", f"there is no suite {rule.suite!r}")
    if rule.benchmark and not Release.objects.filter(benchmark=rule.benchmark).exists():
        raise UserError("rules", f"no release of {rule.benchmark!r} is published")


def check(*, channel: str, policy: Policy, version: int, promoted: Promotion | None) -> list[Outcome]:
    """Every rule of the channel, applied to this version beside the one that is promoted now."""
    return [_apply(rule, policy, version, promoted) for rule in rules(channel)]


def _apply(rule: GateRule, policy: Policy, version: int, promoted: Promotion | None) -> Outcome:
    mine = _newest(rule, policy, version)
    if mine is None:
        why = f"{policy.at(version)} has no finished evaluation on {rule.about}{_passes(rule)}"
        return Outcome(rule=rule, ok=False, score=None, evaluation=None, why=why, **_lacking(rule, policy, version))
    score, of = _score(rule, mine)
    wrong: list[str] = []
    more: dict[str, Any] = {}
    if rule.min_score is not None and score < rule.min_score:
        wrong.append(f"{score:.1%}{of} is below {rule.min_score:.1%}")
    if rule.max_drop is not None and promoted and (promoted.policy_id, promoted.version) != (policy.pk, version):
        theirs = _newest(rule, promoted.policy, promoted.version)
        if theirs is None:
            wrong.append(f"{promoted.policy.at(promoted.version)} is promoted and has no evaluation to compare with")
            more = _lacking(rule, promoted.policy, promoted.version)
        else:
            (now, both), (before, _) = _score(rule, mine, theirs), _score(rule, theirs, mine)
            if now < before - rule.max_drop:
                wrong.append(f"{now:.1%} is more than {rule.max_drop:.1%} below {before:.1%}{both}")
    if wrong and not more:
        more = {
            "remedy": f"read what evaluation {mine.pk} failed and train on; a newer evaluation would count instead of it, "
            "and an operator may change the rule"
        }
    return Outcome(rule=rule, ok=not wrong, score=score, evaluation=mine.pk, why="; ".join(wrong), **more)


def _score(rule: GateRule, evaluation: Evaluation, beside: Evaluation | None = None) -> tuple[float, str]:
    """What the rule measures in an evaluation, and words for the K of a best of K.

    Best of 16 says nothing beside best of 8, so K is the rule's `samples`, or the largest below that this evaluation and the
    one `beside` it know. Of a rule for any number of samples it is the largest that both know.
    """
    if rule.measure == "pass1":
        return float(evaluation.results["pass1"]), ""
    mine = _best_at(evaluation)
    shared = mine.keys() & _best_at(beside).keys() if beside else mine.keys()
    k = max(k for k in shared if k <= rule.samples or rule.samples == 1)
    return mine[k], f" (best of {k})"


def _best_at(evaluation: Evaluation) -> dict[int, float]:
    """Best of K by K. Evaluations of older versions know that of all their samples only."""
    results = evaluation.results
    known = {evaluation.samples: float(results["best"]), 1: float(results["pass1"])}
    return known | {int(k): float(share) for k, share in results.get("best_at", {}).items()}


def _lacking(rule: GateRule, policy: Policy, version: int) -> dict[str, Any]:
    """What to do about a version without an evaluation: wait for one that is under way, or ask for one."""
    open_ = _on(rule, policy, version).filter(state__in=["pending", "running"]).order_by("-pk").first()
    reference = policy.at(version)
    if open_ is not None:
        remedy = f"wait for evaluation {open_.pk} of {reference}, which is {open_.state}"
        return {"remedy": remedy, "missing": reference, "under_way": open_.pk}
    return {"remedy": f"evaluate {reference} on {rule.about}{_passes(rule)}", "missing": reference}


def _passes(rule: GateRule) -> str:
    return f" with {rule.samples} passes or more" if rule.samples > 1 else ""


def _newest(rule: GateRule, policy: Policy, version: int) -> Evaluation | None:
    finished = _on(rule, policy, version).filter(state="finished")
    return finished.filter(**{f"results__{rule.measure}__isnull": False}).order_by("-pk").first()


def _on(rule: GateRule, policy: Policy, version: int) -> QuerySet[Evaluation]:
    """Evaluations of the version that the rule would go by, whatever became of them."""
    query = Evaluation.objects.filter(
        policy=policy, version=version, samples__gte=rule.samples, interruption__isnull=True
    )
    if rule.suite:
        return query.filter(suite__name=rule.suite, release=None)
    return query.filter(release=newest_release(rule))


def newest_release(rule: GateRule) -> Release | None:
    return Release.objects.filter(benchmark=rule.benchmark).order_by("-number").first()
