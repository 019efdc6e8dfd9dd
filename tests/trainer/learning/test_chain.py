"""Chain credit learns for real: a summary is rewarded only by what a later window makes of it.

A secret is shown in the first window, where the policy writes one token, its summary. The second window opens with that
token alone and the policy answers; the reward is whether the answer is the secret. The starting policy can read (it
answers what its window says) and writes summaries at random. Nothing but the reward says what a good summary is, so that
one can only come about when the summary's tokens share the reward of the answer.
"""

from __future__ import annotations

import random

import pytest
import torch

from tests.trainer.learning.models import tiny_model
from trainer.algorithms import group_streams
from trainer.config import CorrectionConfig, ObjectiveConfig, OptimizerConfig
from trainer.learning.importance_sampling import correction_of
from trainer.learning.step import Learner
from trainer.toy.preset import toy_rl
from trainer.types import Segment, TrainGroup

pytestmark = pytest.mark.integration

SECRETS = (10, 11, 12)
START, SUMMARIZE, GO_ON, NOTHING = 1, 2, 3, 4
GROUP = 32
STEPS = 40


def starting_policy(seed: int):
    """Trained on what it can do before: copy its window's token as the answer, say any secret as a summary."""
    model = tiny_model(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = [([START, said, SUMMARIZE], written) for said in SECRETS for written in SECRETS]
    rows += [([START, NOTHING, GO_ON], answer) for answer in SECRETS]
    rows += [([START, said, GO_ON], said) for said in SECRETS] * 3
    prompts, targets = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(model(prompts).logits[:, -1], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def write(model, prompts: list[list[int]], generator: torch.Generator) -> list[tuple[int, float]]:
    """One sampled token and its log-probability for each prompt (all of one length)."""
    logps_BV = torch.log_softmax(model(torch.tensor(prompts)).logits[:, -1].float(), -1)
    tokens_B = torch.multinomial(logps_BV.exp(), 1, generator=generator)[:, 0]
    return [(int(t), float(logps_BV[b, t])) for b, t in enumerate(tokens_B)]


def window(prompt: list[int], wrote: tuple[int, float]) -> Segment:
    token, logp = wrote
    n = len(prompt)
    return Segment(
        tokens=[*prompt, token], logprobs=[0.0] * n + [logp], loss_mask=[0] * n + [1], versions=[-1] * n + [0]
    )


def play(model, secret: int, generator, *, summaries: bool) -> tuple[list[list[Segment]], list[float]]:
    """A group of rollouts of two windows; without summaries the second one is told nothing."""
    first = [START, secret, SUMMARIZE]
    summed = write(model, [first] * GROUP, generator)
    second = [[START, token if summaries else NOTHING, GO_ON] for token, _ in summed]
    answers = write(model, second, generator)
    rollouts = [
        [window(first, summary), window(opening, answer)]
        for summary, opening, answer in zip(summed, second, answers, strict=True)
    ]
    return rollouts, [float(token == secret) for token, _ in answers]


def train(*, summaries: bool, credit: bool = True, seed: int = 0) -> tuple[float, float]:
    """Share of right answers before (40 groups) and after training (mean of the last 10 steps)."""
    generator, order = torch.Generator().manual_seed(seed), random.Random(seed)
    model = starting_policy(seed)
    objective = ObjectiveConfig(loss_divisor=16.0, correction=CorrectionConfig(kind="none"))
    config = toy_rl(group_size=GROUP, objective=objective)
    learner = Learner(
        model,
        objective=objective,
        correction=correction_of(objective),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=0, decay_start=1.0),
        temperature=1.0,
        total_steps=STEPS,
        micro_batch_tokens=4096,
    )
    model.eval()
    before = [sum(play(model, order.choice(SECRETS), generator, summaries=summaries)[1]) for _ in range(40)]
    right: list[float] = []
    for step in range(1, STEPS + 1):
        groups = []
        for index, secret in enumerate(SECRETS):
            rollouts, rewards = play(model, secret, generator, summaries=summaries)
            right.append(sum(rewards) / GROUP)
            learned = rollouts if credit else [segments[1:] for segments in rollouts]
            groups.append(
                TrainGroup(
                    group_id=f"{step}-{index}",
                    prompt_index=step * 10 + index,
                    dispatched_version=step - 1,
                    oldest_version=step - 1,
                    rewards=rewards,
                    samples=group_streams(rewards, learned, config),
                )
            )
        learner.train(groups, step=step)
    return sum(before) / (40 * GROUP), sum(right[-30:]) / 30


@pytest.mark.timeout(300)  # six seconds of one core
def test_trained_summaries_carry_the_secret_where_truncation_and_untrained_ones_cannot():
    before, trained = train(summaries=True)
    _, truncated = train(summaries=False)
    _, uncredited = train(summaries=True, credit=False)
    chance = pytest.approx(1 / 3, abs=0.1)
    assert before == chance, "an untrained summary says nothing"
    assert truncated == chance, "one answer for all secrets is the best that a forgotten past allows"
    assert uncredited == chance, "without its share of the reward a summary does not learn what to say"
    assert trained > 0.9
