"""A canary watched while it is open, what a gate asks before anything is promoted, and evaluations from the pages."""

from __future__ import annotations

import random

import pytest
from playwright.sync_api import Page, expect

from composer_web.env import REPOSITORY
from composer_web.evals.models import Evaluation
from composer_web.evals.results import tasks
from composer_web.gateway import configuration
from composer_web.gateway.sessions.canary import compare
from composer_web.gateway.sessions.tasks import watch
from composer_web.live.hints import hint
from composer_web.policies.models import Policy
from composer_web.policies.promotion import gate
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import record_checkpoint
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import GROUP_OPEN
from tests.browser import episodes
from tests.browser.conftest import Product, confirmed
from tests.browser.sessions import in_use

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
RULE = {"suite": "held-out", "min_score": 0.5, "samples": 2}


@pytest.fixture
def versions(product: Product, db: None) -> Policy:
    """base@0 is promoted; base@1 is on disk."""
    base = Policy.objects.get(name="base")
    record_checkpoint(policy=base, version=1, path=REPOSITORY / "policies" / "base", final=False)
    gate.set_rules(channel=promotion.CHANNEL, wanted=[])
    return base


def play(evaluation: Evaluation, *, skill: float, groups: int | None = None) -> None:
    """What the workers of a product do with an evaluation; none run beside the browser's server."""
    if evaluation.state == "pending":
        tasks.start(evaluation_id=evaluation.pk)
    for group in evaluation.groups.filter(state__in=GROUP_OPEN).select_related("task_version")[:groups]:
        episodes.finish_group(group, draw=random.Random(f"{evaluation.pk}/{group.pk}"), skill=skill)
    tasks.advance(evaluation_id=evaluation.pk)


def test_a_canary_is_seen_while_it_sings(operator: Page, product: Product, versions: Policy) -> None:
    page, owner = operator, product.world.people["viewer"]
    promotion.canary(reference="base@1", share=0.1)
    page.goto(f"{product.url}/promotion/")
    table = page.locator("section", has=page.get_by_role("heading", name="Canary against promoted"))
    edits = table.get_by_role("row", name="The share of turns that edit")
    expect(edits).to_contain_text("too little to say: 50 needed on each side")
    page.evaluate("() => { window.notReloaded = true }")
    form = page.get_by_role("form", name="Promote a version")
    form.get_by_label("Note").fill("half a sentence")
    in_use(owner, versions, 0, 60, {"calls": 1, "edits": 1})
    in_use(owner, versions, 1, 60, {"question": True})
    hint("promotion")
    expect(edits).to_contain_text("broken")
    expect(edits).to_contain_text("may fall by 15.0")
    expect(table.get_by_role("row", name="Turns", exact=False).first).to_contain_text("60")
    expect(form.get_by_label("Note")).to_have_value("half a sentence")
    table.get_by_role("link", name="change the guards").click()
    page.get_by_label("Edit drop").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice")).to_contain_text("canary.edit_drop: Input should be less than or equal to 1")
    page.get_by_label("Edit drop").fill("0.9")
    page.get_by_label("Question rise").fill("1")
    page.get_by_label("Bad rise").fill("0.5")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toasts .toast")).to_contain_text("Gateway settings saved")
    expect(page.get_by_label("Bad rise")).to_have_value("0.5")
    expect(page.get_by_label("Good drop")).to_have_value("")
    assert configuration.settings_of().canary.edit_drop == 0.9
    page.goto(f"{product.url}/promotion/")
    expect(table.get_by_role("row", name="The share of turns that only ask")).to_contain_text("holds")
    configuration.change(values={"canary": {"question_rise": 0.1}})
    watch()
    assert compare() is None
    expect(page.get_by_role("heading", name="Canary against promoted")).to_have_count(0)


def test_a_question_belongs_to_its_own_form_when_the_part_changes(
    operator: Page, product: Product, versions: Policy
) -> None:
    """The live part is fetched anew while the dialog is open; what goes on is the form that asked."""
    page = operator
    promotion.promote(reference="base@1")
    page.goto(f"{product.url}/promotion/")
    page.get_by_role("button", name="Roll back to base@0").click()
    page.evaluate("() => { document.querySelector('#served').dataset.old = 'yes' }")
    promotion.canary(reference="base@0", share=0.2)
    expect(page.locator("#served[data-old]")).to_have_count(0)
    page.locator("dialog.confirm").get_by_role("button", name="Roll back to base@0").click()
    expect(page.locator(".toasts .toast")).to_contain_text("New sessions are served accordingly")
    now = promotion.current()
    assert now is not None and (now.kind, now.version, now.canary_policy) == ("rollback", 0, None)


def test_what_the_gate_asks_for_is_done_from_its_preview(operator: Page, product: Product, versions: Policy) -> None:
    page = operator
    gate.set_rules(channel=promotion.CHANNEL, wanted=[RULE])
    page.goto(f"{product.url}/policies/base/")
    page.get_by_role("row", name="1 Resumable").get_by_role("link", name="promote").click()
    form = page.get_by_role("form", name="Promote a version")
    expect(form.get_by_label("Policy")).to_have_value("base@1")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("would not pass")
    form.get_by_label("Policy").select_option("base@0")
    expect(preview).to_contain_text("base@0 is promoted already")
    form.get_by_label("Policy").select_option("base@1")
    ask = preview.get_by_role("form", name="Evaluate base@1 on held-out")
    expect(ask.get_by_label("Samples")).to_have_value("2")
    ask.get_by_label("Tasks").fill("3")
    page.evaluate("() => { document.querySelector('#preview [data-live]').dataset.old = 'yes' }")
    hint("promotion")
    expect(preview.locator("[data-old]")).to_have_count(0)
    expect(ask.get_by_label("Tasks")).to_have_value("3")
    expect(ask.get_by_label("Tasks")).to_be_focused()
    ask.get_by_role("button", name="Evaluate").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("base@1 on held-out")
    made = Evaluation.objects.latest("pk")
    assert (made.version, made.tasks, made.samples) == (1, 3, 2)
    page.goto(f"{product.url}/promotion/")
    form.get_by_label("Policy").select_option("base@1")
    expect(preview).to_contain_text(f"wait for evaluation {made.pk} of base@1, which is pending")
    play(made, skill=1.0)
    expect(preview).to_contain_text("holds every rule of the gate")
    confirmed(page, form.get_by_role("button", name="Promote for all"), "Serve base@1 to everybody?")
    expect(page.locator("#served dl")).to_contain_text("base@1")


def test_evaluate_and_cancel_from_the_policys_page(operator: Page, product: Product, versions: Policy) -> None:
    page = operator
    page.goto(f"{product.url}/policies/base/")
    form = page.get_by_role("form", name="Evaluate")
    form.get_by_label("Version").select_option("1")
    form.get_by_label("Suite").select_option("held-out")
    form.get_by_label("Tasks").fill("4")
    form.get_by_label("Samples").fill("1")
    form.get_by_label("Temperature").fill("0.5")
    form.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".toasts .toast")).to_contain_text("The evaluation is on its way.")
    expect(page.locator("#evaluation")).to_contain_text("0 of 4 tasks")
    made = Evaluation.objects.latest("pk")
    play(made, skill=1.0, groups=1)
    expect(page.locator("#evaluation")).to_contain_text("1 of 4 tasks")
    page.goto(f"{product.url}/policies/base/")
    row = page.locator("#evaluations tr", has=page.locator(f"a[href='/evaluations/{made.pk}/']"))
    expect(row).to_contain_text("1 of 4 tasks")
    made.refresh_from_db()
    play(made, skill=1.0, groups=1)
    expect(row).to_contain_text("2 of 4 tasks")
    stop = row.get_by_role("button", name=f"Stop evaluation {made.pk}")
    stop.click()
    page.keyboard.press("Escape")
    assert Evaluation.objects.get(pk=made.pk).state == "running"
    question = f"Stop evaluation {made.pk}? Its open rollouts end without a verdict."
    confirmed(page, stop, question)
    expect(page.get_by_role("heading", level=1)).to_contain_text("base@1 on held-out")
    expect(page.locator("#evaluation")).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Stop evaluation")).to_have_count(0)
    assert rollouts.drop_open(evaluation_id=made.pk) == 2
