"""The language model judge over stored rollouts. It is asked by a worker, after the group; training never waits for it."""

from __future__ import annotations

import hashlib

from composer_web.env import env
from composer_web.ops.artifacts import ArtifactError, artifacts
from composer_web.rollouts import auditing, selectors
from composer_web.rollouts.models import Rollout
from sandbox.grading.audit.judge import Endpoint, Judge
from trainer.rollouts.attempt import attempt_of


class ArtifactCache:
    """Opinions in the artifact store, by the digest of what was asked."""

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
    """The judge of this installation; None when there is none."""
    if not env().judge_url or not env().judge_model:
        return None
    return Judge(Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache())


def provide_grades() -> None:
    """Reward parts that want a language model's grades, and textual feedback its hints, get them from the same endpoint."""
    from trainer.learning import feedback
    from trainer.rewards import rubric

    def judge() -> rubric.RewardJudge | None:
        if not env().judge_url or not env().judge_model:
            return None
        return rubric.RewardJudge(Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache())

    def writer() -> feedback.HintWriter | None:
        if not env().judge_url or not env().judge_model:
            return None
        return feedback.HintWriter(Endpoint(env().judge_url, env().judge_model, env().judge_key), cache=ArtifactCache())

    rubric.use(judge)
    feedback.use(writer)


def chosen(rollout_id: int, share: float) -> bool:
    """Whether the judge reads this rollout: a fixed draw, the same whenever it is asked."""
    draw = int.from_bytes(hashlib.sha256(f"judge:{rollout_id}".encode()).digest()[:8], "big")
    return draw < share * 2.0**64


def judge_rollout(*, rollout: Rollout, judge: Judge) -> int:
    """Ask about one rollout and store what it says; how many findings changed. Raises JudgeError, ArtifactError, NotFound."""
    trajectory = selectors.trajectory(rollout)
    attempt = attempt_of(trajectory, rollout.group.task_version.bundle)
    return auditing.judged(rollout=rollout, found=judge.findings(attempt))
