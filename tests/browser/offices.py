"""Where the team works: datasets, kept views and templates, invitations, alerts that were raised, a second factor."""

from __future__ import annotations

import io
import json
import shutil

from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP

from composer_web.accounts import people
from composer_web.accounts.services import create_user
from composer_web.alerts.models import Webhook
from composer_web.alerts.rules import services as alerts
from composer_web.alerts.rules import watching
from composer_web.datasets import corpora, corpus_services
from composer_web.datasets import services as datasets
from composer_web.datasets.schemas import CorpusWanted, Wanted
from composer_web.review import services as review
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.models import Rollout
from composer_web.runs.launch import templates
from composer_web.ui import saved_views
from tests.browser.seed import PASSWORD, World
from tests.browser.states import CAREFUL, SECRET
from trainer.config import RunConfig


def offices(world: World, hook: Webhook) -> None:
    admin, operator = world.people["admin"], world.people["operator"]
    careful = create_user(username=CAREFUL, password=PASSWORD, role="reviewer")
    TOTP.activate(careful, SECRET)
    RecoveryCodes.activate(careful)
    people.invite(actor=admin, username="new-colleague", role="operator", email="new.colleague@example.org")
    _datasets(world)
    _corpora(world)
    saved_views.save(table="runs", name="Failed this week", query="state=failed", shared=True, owner=operator)
    saved_views.save(table="runs", name="RL only", query="kind=rl", shared=False, owner=admin)
    saved_views.save(
        table="rollouts", name="Lost to machines", query="verdict=infra_error", shared=True, owner=operator
    )
    config = RunConfig.model_validate(world.run.config)
    templates.save_template(name="Small repositories", config=config, description="As in the demo", actor=operator)
    told = {"webhook": hook, "emails": ["ops@example.org"]}
    entropy = {"metric": "policy/entropy", "comparison": "below", "threshold": 0.2, "window": 5}
    alerts.make_rule(actor=operator, name="Entropy collapses", kind="metric", **entropy, **told)
    alerts.make_rule(actor=operator, name="A high finding", kind="finding", severity="high")
    watching.look()
    queue = review.create_queue(name="calibration", questionnaire=EXAMPLE, reviewers=1, actor=operator)
    review.fill(
        queue=queue, rollouts=Rollout.objects.filter(group__run=world.run, verdict="passed"), limit=1, actor=operator
    )
    answers = {"verdict": "right", "quality": "5", "flags": []}
    review.label(item=queue.items.get(), answers=answers, actor=world.people["reviewer"])


def _datasets(world: World) -> None:
    """One made of a file and of rollouts, one that waits, one whose source is no conversation."""
    operator = world.people["operator"]
    said = [("What does scale do?", "It multiplies by `by`."), ("And shift?", "It adds.")]
    lines = [
        {"messages": [{"role": "user", "content": f"{asked} ({n})"}, {"role": "assistant", "content": answer}]}
        for n in range(20)
        for asked, answer in said
    ] * 2
    file = "\n".join(map(json.dumps, lines)).encode()
    wanted = Wanted(rollouts=f"verdict=passed&run={world.run.pk}", suites=["held-out"])
    done = datasets.ask(name="answers-v1", wanted=wanted, files={"answers.jsonl": io.BytesIO(file)}, actor=operator)
    made = datasets.write(done.pk)
    assert made.endswith(" conversations"), made
    broken = datasets.ask(name="broken", wanted=Wanted(), files={"odd.jsonl": io.BytesIO(b"{}\n")}, actor=operator)
    datasets.write(broken.pk)
    datasets.ask(name="next", wanted=Wanted(), files={"more.jsonl": io.BytesIO(file)}, actor=operator)


def _corpora(world: World) -> None:
    """One made of a file, one whose source holds no text."""
    operator = world.people["operator"]
    modules = [{"text": f"def scale_{n}(by):\n    return by * {n}\n", "path": f"s{n}.py"} for n in range(9)]
    for name, rows in (("modules", modules * 2), ("no-text", [{"body": "x"}])):
        data = "\n".join(map(json.dumps, rows)).encode()
        shutil.rmtree(corpora.folder_of(name), ignore_errors=True)  # of a database that is gone
        made = corpus_services.ask(
            name=name, wanted=CorpusWanted(), files={"modules.jsonl": io.BytesIO(data)}, actor=operator
        )
        corpus_services.write(made.pk)
