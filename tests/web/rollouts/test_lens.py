"""The token lens: what the trainer knew is kept when a batch is trained, and shown or explained token by token."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.queue import leases
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.trajectory import lens, trajectory_store
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource, DatabaseSink, RunControl
from tests.support.blobs import artifact_folder
from tests.web.making import claim, finish
from trainer.learning.token_export import TokenStreams, TrainedGroup, digest_of, packed
from trainer.types import Segment, Trajectory, Turn

pytestmark = pytest.mark.django_db


@pytest.fixture
def control(running: Run) -> RunControl:
    held = leases.take(f"run:{running.pk}", owner="trainer", seconds=60)
    assert held is not None
    rollouts.pump(run_id=running.pk)
    return RunControl(running, held)


def trained(control: RunControl) -> list[TrainedGroup]:
    """Step 1 of the run, with streams whose numbers say where they belong; the second sample was not scored."""
    for group in Group.objects.filter(run=control.run, prompt_index__in=(0, 1)):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    batch = DatabaseGroupSource(control).next_batch(1, timeout=5)
    kept = [
        TrainedGroup(
            prompt_index=group.prompt_index,
            step=1,
            samples=[
                TokenStreams(
                    digest=digest_of(sample.tokens, sample.sampler_logprobs),
                    tokens=2,
                    advantages=packed([0.5, -0.5]),
                    trainer_logprobs=packed([-0.75, float("nan")]) if not index else "",
                    entropy=packed([1.5, 2.5]) if not index else "",
                    weights=packed([1.0, 0.0]) if not index else "",
                )
                for index, sample in enumerate(group.samples[:1])
            ],
        )
        for group in batch
    ]
    DatabaseSink(control).streams(kept)
    return kept


def ask(people: dict[str, User], rollout: Rollout, query: str = "") -> dict[str, object]:
    browser = Client()
    browser.force_login(people["viewer"])
    answer = browser.get(f"/rollouts/{rollout.pk}/tokens/{query}")
    assert answer.status_code == 200
    found: dict[str, object] = json.loads(answer.content)
    return found


def test_what_a_step_knew_of_its_tokens_is_shown(control: RunControl, people: dict[str, User]) -> None:
    trained(control)
    rollout = Rollout.objects.filter(group__run=control.run, group__consumed_step=1).earliest("pk")
    page = ask(people, rollout)
    assert page["sampled"] == [0, 1, 1]
    assert page["logprobs"] == [None, -0.5, -0.25]
    assert page["trainer_logprobs"] == [None, -0.75, None]  # what is no number is not sent as one
    assert page["entropy"] == [None, 1.5, 2.5]
    assert page["advantages"] == [None, 0.5, -0.5]
    assert page["weights"] == [None, 1.0, 0.0]
    assert (page["step"], page["missing"]) == (1, {})
    assert (page["first"], page["end"], page["before"], page["after"]) == (0, 3, None, None)


def test_what_is_missing_is_explained(control: RunControl, people: dict[str, User]) -> None:
    waiting = Rollout.objects.filter(group__run=control.run).latest("pk").group
    claimed = claim(waiting)
    finish(claimed.group, claimed.held, [True, False])
    unread = ask(people, waiting.rollouts.get(sample=0))
    assert unread["missing"]["advantages"] == "The trainer has not read this group yet."  # type: ignore[index]
    group = Group.objects.get(run=control.run, prompt_index=0)
    claimed = claim(group)
    finish(claimed.group, claimed.held, [True, False])
    Group.objects.filter(pk=group.pk).update(consumed_step=4)
    rollout = selectors.get_rollout(group.rollouts.get(sample=0).pk)
    segment = selectors.trajectory(rollout).segments[0]
    assert "Step 4 kept nothing" in lens.trained_with(rollout, segment).missing["entropy"]
    other = TrainedGroup(prompt_index=0, step=4, samples=[])
    artifacts().put_model(lens.key_of(group.pk), other)
    assert "in quarantine or cut off" in lens.trained_with(rollout, segment).missing["advantages"]
    digest = digest_of(segment.tokens, segment.logprobs)
    plain = TokenStreams(digest=digest, tokens=2, advantages=packed([0.0, 0.0]))
    artifacts().put_model(lens.key_of(group.pk), other.model_copy(update={"samples": [plain]}))
    found = lens.trained_with(rollout, segment).missing
    assert "advantages" not in found
    assert "their advantage is 0" in found["trainer_logprobs"]


def test_a_lens_that_cannot_be_kept_does_not_stop_the_run(control: RunControl, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = trained(control)
    folder = artifact_folder() / "groups"
    monkeypatch.setattr(artifacts(), "place", folder / "missing.file")
    (folder / "missing.file").write_text("a file where a folder has to be")
    DatabaseSink(control).streams(kept)
    assert "the token lens lacks a step" in RunEvent.objects.filter(run=control.run, kind="alert").latest("pk").message


def long(tokens: int) -> Segment:
    return Segment(
        tokens=list(range(tokens)),
        logprobs=[0.0] + [-0.1] * (tokens - 1),
        loss_mask=[0] + [1] * (tokens - 1),
        versions=[-1] + [3] * (tokens - 1),
    )


def test_pages_are_bounded_and_hold_the_token_that_is_asked_for() -> None:
    segment, nothing = long(5 * lens.PER_PAGE), lens.Trained(None, None, {})
    span = lens.Span(0, 10, len(segment.tokens) - 10)
    first = lens.page_of(segment, span, 0, None, nothing)
    assert (first["first"], first["end"], first["before"]) == (10, 10 + lens.PER_PAGE, None)
    page = lens.page_of(segment, span, 2345, None, nothing)
    assert page["first"] <= 2345 < page["end"]
    assert len(page["texts"]) == len(page["ids"]) == len(page["logprobs"]) == lens.PER_PAGE
    assert len(json.dumps(page)) < 150_000
    at, seen = 0, 0
    while at is not None:
        page = lens.page_of(segment, span, at, None, nothing)
        seen += page["end"] - page["first"]
        at = page["after"]  # type: ignore[assignment]
    assert seen == span.end - span.first


def test_a_turn_has_its_own_tokens_and_what_its_tools_answered(control: RunControl) -> None:
    group = Group.objects.filter(run=control.run).earliest("pk")
    claimed = claim(group)
    finish(claimed.group, claimed.held, [True, False])
    short: Trajectory = selectors.trajectory(selectors.get_rollout(group.rollouts.get(sample=0).pk))
    turns = (
        Turn(index=0, text="", token_start=10, token_end=20),
        Turn(index=1, text="", token_start=30, token_end=40),
        Turn(index=2, segment=1, text="", token_start=5, token_end=9),
    )
    made = short.model_copy(update={"turns": turns, "segments": (long(50), long(12))})
    read = trajectory_store.in_memory(made)
    assert lens.span_of_turn(read, 0) == lens.Span(0, 10, 30)
    assert lens.span_of_turn(read, 1) == lens.Span(0, 30, 50)
    assert lens.span_of_turn(read, 2) == lens.Span(1, 5, 12)
    assert lens.span_of_turn(read, 3) is None
