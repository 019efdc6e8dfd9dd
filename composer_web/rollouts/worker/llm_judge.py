"""LLM judge over stored rollouts. A worker calls it after the group; training never waits for it."""

from __future__ import annotations

import hashlib

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.env import env
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.models import Rollout
from sandbox.grading.audit.judge import Endpoint, Judge
from trainer.attempt import attempt_of


class ArtifactCache:
    """Cache of judge answers in the artifact store, keyed by the digest of the question."""

    def get(self, key: str) -> str | None:
        try:
            return artifacts().get(_blob(key)).decode()
        except ArtifactError:
            return None  # never asked, or removed: ask again

    def put(self, key: str, value: str) -> None:
        artifacts().put(_blob(key), value.encode())


def _blob(key: str) -> str:
    return f"judge/{key[:2]}/{key}.json.zst"


def configured() -> Judge | None:
    """The judge of this installation, or None."""
    if not env().judge_url or not env().judge_model:
        return None
    return Judge(Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache())


def provide_grades() -> None:
    """Connect reward components that need LLM grades, and textual feedback, to the judge's endpoint."""
    from trainer.algorithms import textual_feedback
    from trainer.rewards import rubric

    def judge() -> rubric.RewardJudge | None:
        if not env().judge_url or not env().judge_model:
            return None
        return rubric.RewardJudge(Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache())

    def writer() -> textual_feedback.HintWriter | None:
        if not env().judge_url or not env().judge_model:
            return None
        return textual_feedback.HintWriter(
            Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache()
        )

    rubric.use(judge)
    textual_feedback.use(writer)


def chosen(rollout_id: int, share: float) -> bool:
    """Whether the judge reads this rollout. The random choice is deterministic per rollout."""
    draw = int.from_bytes(hashlib.sha256(f"judge:{rollout_id}".encode()).digest()[:8], "big")
    return draw < share * 2.0**64


def judge_rollout(*, rollout: Rollout, judge: Judge) -> int:
    """Judge one rollout and store the result. Returns the number of changed findings. Raises JudgeError,
    ArtifactError, NotFound."""
    trajectory = selectors.trajectory(rollout)
    attempt = attempt_of(trajectory, rollout.group.task_version.bundle)
    return findings.judged(rollout=rollout, found=judge.findings(attempt))
