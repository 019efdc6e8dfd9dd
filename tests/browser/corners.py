"""What few pages show: a sweep, a draft of a task, a trajectory of another project, a webhook, exports."""

from __future__ import annotations

import math

from composer_web.alerts.models import Webhook
from composer_web.env import REPOSITORY
from composer_web.policies.models import Policy
from composer_web.policies.promotion import gate
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import record_checkpoint
from composer_web.review import task_drafts
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.exports import records
from composer_web.rollouts.models import Rollout
from composer_web.runs import labels, metrics, services
from composer_web.runs.launch import sweeps
from composer_web.runs.reports import services as reports
from composer_web.studies import results
from composer_web.studies import services as studies
from composer_web.studies.schemas import StudyIn
from composer_web.tasks.exchange import importing
from tests.browser import sessions
from tests.browser.offices import offices
from tests.browser.seed import World
from trainer.config import RunConfig
from trainer.toy.preset import toy_midtrain, toy_rl, toy_sft


def corners(world: World) -> None:
    operator = world.people["operator"]
    a_study(world)
    config = RunConfig(name="SFT on the expert", stage=toy_sft(steps=30))
    sweep = sweeps.create_sweep(
        config=config, fields={"stage.optimizer.learning_rate": [1e-4, 3e-4, 1e-3]}, start=True, actor=operator
    )
    for place, run in enumerate(sweeps.members(sweep)):
        services.mark_running(run=run, owner=f"trainer@seed/{place}")
        for step in range(1, 31):
            fall = math.exp(-step * (1 + place) / 14)
            values = {
                "loss/train": 0.9 - 0.2 * place + 2.2 * fall, "optim/learning_rate": 1e-4 * 3**place,
                "optim/grad_norm": 0.4 + fall, "speed/train_tokens": 2000.0 + 40 * (step % 5),
            }  # fmt: skip
            metrics.record(run=run, step=step, values=values)
        services.set_progress(run=run, step=30)
        services.mark_finished(run=run)
    a_report(world)
    failed = Rollout.objects.filter(group__run=world.run, verdict="failed").exclude(artifact_key="").latest("pk")
    task_drafts.create_draft(
        rollout=failed, turn=0, slug="scale-by-another-number", actor=world.people["reviewer"],
        instruction="scale() adds where it should multiply. Fix it.",
    )  # fmt: skip
    importing.keep_trajectory("".join(records.as_atif(failed)).encode(), actor=operator)
    a_canary(world)
    told = ["run.failed", "evaluation.finished"]
    hook = Webhook.objects.create(name="chat", url="https://chat.example.org/hook", secret="sealed", events=told)
    offices(world, hook)
    files(world)


def a_study(world: World) -> None:
    """Two seeds: points of the first, and in the second a mid-training that failed and one that was stopped. Its runs are
    archived: lists and the home page show the others."""
    wanted = StudyIn(
        name="Does mid-training pay", policy="base", seeds=[0, 1], midtrain=toy_midtrain(steps=20),
        sft=toy_sft(steps=20), rl=toy_rl(steps=8, groups_per_step=1, eval_suite=None),
    )  # fmt: skip
    study = studies.create_study(wanted=wanted, actor=world.people["operator"])
    for place, chain in enumerate(results.results(study).chains):
        if chain.seed == 1 and chain.level == "L":
            services.mark_running(run=chain.midtrain, owner="trainer@seed/0")
            services.mark_failed(run=chain.midtrain, cause="the GPU ran out of memory; lower batch_tokens")
        if chain.seed == 1 and chain.level == "M":
            services.cancel_run(run=chain.midtrain)
        if chain.seed == 1 and chain.level != "S":
            continue
        for run in (chain.midtrain, chain.sft, chain.rl):
            services.mark_running(run=run, owner="trainer@seed/0")
            for step in range(1, run.steps_total + 1):
                fall = math.exp(-step / run.steps_total)
                reward = {"reward/mean": 0.1 + 0.08 * place * (1 - fall), "eval/pass1": 0.1 + 0.05 * place}
                loss = {"loss/train": 1 + fall, "loss/heldout": 1.4 - 0.15 * place + fall}
                metrics.record(run=run, step=step, values=reward if run is chain.rl else loss)
            services.set_progress(run=run, step=run.steps_total)
            services.mark_finished(run=run)
    for member in study.members.select_related("run"):
        labels.archive_run(run=member.run)


def a_report(world: World) -> None:
    """Text with a table, runs over each other, and a panel of one."""
    words = "# Reward\n\nIt rises **earlier** than before. <b>Not bold</b>\n\n| run | K |\n|---|--:|\n| new | 8 |"
    both = {"title": "Reward of two runs", "keys": ["reward/mean", "reward/best_of_k"], "size": 2, "height": 2}
    one = {"title": "Entropy", "keys": ["policy/entropy"], "size": 1, "smoothing": 0.8}
    reports.create_report(
        title="What the small repositories taught",
        description="Weekly notes",
        blocks=[
            {"kind": "text", "text": words},
            {"kind": "panel", **both, "runs": [world.run.pk, world.other.pk]},
            {"kind": "panel", **one, "runs": [world.run.pk]},
        ],
        actor=world.people["operator"],
    )


def files(world: World) -> None:
    """Exports that were written, one of which held what had to be deleted."""
    tables = (("rollouts", "csv", "verdict=passed"), ("findings", "jsonl", ""), ("sessions", "jsonl", "q=scale"))
    for owner in (world.people["operator"], world.people["admin"]):
        asked = [exports.ask(owner=owner, what=what, format=form, query=query) for what, form, query in tables]
        for export in asked:
            exports.write(export.pk)
        exports.void(pks=[asked[-1].pk], why="a session that it held was deleted", actor=world.people["admin"])


def a_canary(world: World) -> None:
    """With enough recorded sessions on both sides for its guards to say something, and too few signals."""
    policy, people = Policy.objects.get(name="base"), world.people
    record_checkpoint(policy=policy, version=1, path=REPOSITORY / "policies" / "base", final=False)
    rules = [rule.model_dump() for rule in gate.rules(promotion.CHANNEL)]
    gate.set_rules(channel=promotion.CHANNEL, wanted=[], actor=people["operator"])
    promotion.canary(reference="base@1", share=0.1, note="One more step", actor=people["operator"])
    gate.set_rules(channel=promotion.CHANNEL, wanted=rules, actor=people["operator"])
    for version, edits, asks in ((0, 80, 12), (1, 48, 6)):
        sessions.in_use(people["viewer"], policy, version, edits, {"calls": 1, "edits": 1}, wait=31.0 + version)
        sessions.in_use(people["viewer"], policy, version, asks, {"question": True}, said="accept")
