"""From what users do after an answer to a policy that serves them: feedback, training, promotion, and the way back.

Nothing stands in for anything: OpenAI's own client asks the gateway, an engine answers, a trainer trains on the recorded
sessions, real evaluations open the gate. `WALK_PICTURES=docs/img` keeps pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from composer_web.accounts.models import AuditEntry, User
from composer_web.celery import app
from composer_web.env import REPOSITORY, env
from composer_web.evals.models import Evaluation
from composer_web.gateway.models import Session, SessionUse
from composer_web.gateway.serving import pipeline, routing, transcripts
from composer_web.policies.services import import_base
from composer_web.runs.models import Run
from composer_web.tasks.services import build_procedural
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.tasks.procedural import generate
from tests.browser import seed, walking
from tests.browser.conftest import confirmed, serve, strict_tab
from tests.browser.screenshots import log_in
from tests.browser.walking import free_port, picture
from tests.web.helpers import eventually
from tests.web.product import Product
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import InferenceError

db, people = walking.db, walking.people

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LONG_MS = 900_000
"""How long a run or an evaluation may take beside everything else that a machine does."""
SESSIONS = 6
CONFIG = """
name: From feedback
policy: base
seed: 1
stage:
  kind: rl
  steps: 1
  groups_per_step: 4
  group_size: 2
  max_off_policy_steps: 0
  max_in_flight_groups: 4
  eval_tasks: 2
  eval_samples: 2
  sampling: {temperature: 1.0}
  optimizer: {warmup_steps: 1}
  checkpoint: {every_steps: 1}
  sessions: {channel: production, settle_minutes: 0}
"""


def engine_answers() -> bool:
    try:
        with InferenceAdmin(env().inference_url) as engine:
            return engine.health().ok
    except InferenceError:
        return False


@pytest.fixture
def address(people: dict[str, User], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The shipped policy, two small suites, a web server, an engine, workers and a trainer."""
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    build_procedural(n_train=2, n_held_out=2)
    port = free_port()
    monkeypatch.setattr(env(), "inference_url", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(pipeline, "known", transcripts.Transcripts())
    routing.policy_folders.clear()
    app.control.purge()  # messages of earlier tests
    product = Product(tmp_path, port, NO_PROXY="127.0.0.1")
    with serve() as url:
        for name in ("inference", "control", "rollout", "beat", "train"):
            product.start(name)
        try:
            eventually(engine_answers, what="the engine", seconds=240)  # it may compile its kernels first
            yield url
        finally:
            product.stop()


def test_from_feedback_to_the_policy_that_serves(
    address: str, people: dict[str, User], context: BrowserContext, tmp_path: Path
) -> None:
    with strict_tab(context) as page:
        log_in(page, address, "operator", seed.PASSWORD)
        secret = make_token(page, address)
        promote_the_base(page, address)
        switch_recording_on(page, address)
        agents = openai.OpenAI(base_url=f"{address}/v1", api_key=secret, max_retries=0, timeout=300)
        work_and_signal(agents, address, secret)
        look_at_a_session(page, address)
        trained = train(page, address)
        gate_and_canary(page, address, trained)
        promote_and_go_back(page, agents, trained)


def make_token(page: Page, address: str) -> str:
    page.goto(f"{address}/tokens/")
    page.get_by_label("Name").fill("agents")
    page.get_by_label("gateway: use the gateway").check()
    page.get_by_role("button", name="Make token").click()
    return page.locator("#new-token").inner_text().strip()


def promote_the_base(page: Page, address: str) -> None:
    page.goto(f"{address}/gateway/settings/")
    expect(page.locator(".empty")).to_contain_text("Nothing is promoted yet")
    page.get_by_role("link", name="Promote a version").click()
    form = page.get_by_role("form", name="Promote a version")
    form.get_by_label("Policy").select_option("base")
    confirmed(page, form.get_by_role("button", name="Promote for all"), "Serve base to everybody?")
    expect(page.locator("dl.facts")).to_contain_text("base@0")


def switch_recording_on(page: Page, address: str) -> None:
    """The change stands in the audit log with what was before."""
    page.goto(f"{address}/gateway/settings/")
    page.get_by_label("Record sessions that ask for it").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toasts .toast")).to_contain_text("Gateway settings saved")
    expect(page.get_by_label("Record sessions that ask for it")).to_be_checked()
    assert AuditEntry.objects.filter(action="gateway.change").latest("pk").changes


def asked(client: openai.OpenAI, session: str, *, seed: int = 1) -> Any:
    messages: Any = [{"role": "user", "content": generate(seed, "train").instruction}]
    return client.chat.completions.create(
        model="production",
        messages=messages,
        tools=schemas_of(get_profile("toy")),  # type: ignore[arg-type]
        temperature=1.0,
        max_tokens=96,
        seed=seed,
        user="ada",
        metadata={"session_id": session, "record": "yes"},
    )


def work_and_signal(client: openai.OpenAI, address: str, secret: str) -> None:
    """Agents ask; of every other answer the user thinks well."""
    for number in range(SESSIONS):
        assert asked(client, f"s-{number}", seed=number + 1).system_fingerprint == "base@0"
        kind = "reject" if number % 2 else "accept"
        told = httpx.post(
            f"{address}/api/v1/gateway/signals",
            json={"session": f"s-{number}", "signals": [{"id": "1", "kind": kind, "turn": 0}]},
            headers={"Authorization": f"Bearer {secret}"},
            trust_env=False,
            timeout=60,
        )
        assert told.status_code == 200 and told.json() == {"new": 1, "known": 0}
    assert Session.objects.count() == SESSIONS


def look_at_a_session(page: Page, address: str) -> None:
    page.goto(f"{address}/gateway/sessions/")
    expect(page.locator("tbody tr")).to_have_count(SESSIONS)
    page.goto(f"{address}/gateway/sessions/{Session.objects.get(client_id='s-0').pk}/")
    expect(page.locator("section", has_text="Signals").first).to_be_visible()
    expect(page.locator("#t0")).to_contain_text("accept")
    picture(page, "feedback-1-session")


def train(page: Page, address: str) -> str:
    """A run on the recorded sessions, through the form; the reference of what it made."""
    page.goto(f"{address}/runs/new/")
    page.locator("#text-fold summary").click()
    page.locator("#config-text").fill(CONFIG)
    page.locator("#fill").click()
    expect(page.locator("[name='name']")).to_have_value("From feedback")
    expect(page.locator("#plan")).to_contain_text("recorded on production")
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("h1")).to_have_text("From feedback")
    expect(page.locator("#run-head")).to_contain_text("finished", timeout=LONG_MS)
    picture(page, "feedback-2-run")
    run = Run.objects.get()
    after = Evaluation.objects.filter(policy=run.policy_out, version=run.step)  # ends later than its run
    eventually(lambda: after.filter(state="finished").exists(), seconds=LONG_MS / 1000, what="the evaluation")
    assert SessionUse.objects.filter(run=run).count() == 4
    return f"run-{run.pk}@{run.step}"


def gate_and_canary(page: Page, address: str, trained: str) -> None:
    """A gate that asks for more than was shown is shut; what the run's own evaluation shows opens it."""
    page.goto(f"{address}/promotion/")
    rule = page.get_by_role("form", name="Add a rule")
    for passes in ("64", "2"):
        rule.get_by_label("On").select_option("suite:held-out")
        rule.get_by_label("At least, in %").fill("0")
        rule.get_by_label("Samples").fill(passes)
        rule.get_by_role("button", name="Add the rule").click()
        expect(page.get_by_role("button", name="Remove the rule on held-out")).to_have_count(1)
        as_a_canary(page, trained)
        if passes == "64":
            expect(page.locator(".notice")).to_contain_text("the gate is shut")
            page.get_by_role("button", name="Remove the rule on held-out").click()
            expect(page.get_by_text("No rule: everything passes.")).to_be_visible()
    expect(page.locator("dl.facts")).to_contain_text(f"{trained} to 50")
    picture(page, "feedback-3-canary")


def as_a_canary(page: Page, trained: str) -> None:
    form = page.get_by_role("form", name="Promote a version")
    form.get_by_label("Policy").select_option(choice(page, trained))
    form.get_by_label("Share in %").fill("50")
    form.get_by_role("button", name="As a canary").click()


def choice(page: Page, trained: str) -> str:
    """A policy with one version on disk is offered by its name alone."""
    names = page.get_by_role("form", name="Promote a version").locator("option").all_inner_texts()
    return trained if trained in names else trained.partition("@")[0]


def promote_and_go_back(page: Page, client: openai.OpenAI, trained: str) -> None:
    """Sessions divide between both; then everybody has the new version, then again the old one."""
    assert {asked(client, f"c-{n}", seed=n).system_fingerprint for n in range(12)} == {"base@0", trained}
    form = page.get_by_role("form", name="Promote a version")
    chosen = choice(page, trained)
    form.get_by_label("Policy").select_option(chosen)
    confirmed(
        page, form.get_by_role("button", name="Promote for all"), f"Serve {chosen} to everybody? The canary ends."
    )
    expect(page.locator("dl.facts")).not_to_contain_text("to 50")
    expect(page.locator("dl.facts")).to_contain_text(trained)
    assert {asked(client, f"c-{n}", seed=n).system_fingerprint for n in range(6)} == {trained}
    confirmed(page, page.get_by_role("button", name="Roll back to base@0"), "Serve base@0 to everybody again?")
    expect(page.locator("dl.facts")).to_contain_text("base@0")
    assert {asked(client, f"c-{n}", seed=n).system_fingerprint for n in range(6)} == {"base@0"}
    picture(page, "feedback-4-rolled-back", "dark")
