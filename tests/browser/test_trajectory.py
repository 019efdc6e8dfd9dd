"""Reading trajectories in a real browser: the token lens, by pointer and by keyboard, and links into it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout
from tests.browser.conftest import Product
from tests.browser.test_every_page import AUDIT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def long(product: Product) -> Rollout:
    """152 turns, with what a trainer knew of its tokens."""
    return Rollout.objects.get(group__run=product.world.run, group__prompt_index=1, sample=0)


def test_the_token_lens_by_keyboard_and_by_link(operator: Page, product: Product) -> None:
    page, rollout = operator, long(product)
    turn = selectors.trajectory(rollout).turns[130]
    at = turn.token_start + 3
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t=130&tok={at}")
    read = page.locator("#tokens-of-turn-130 .lens__read")
    expect(read).to_contain_text(
        re.compile(rf"#{at} · id \d+ · log p -[\d.]+ \(p 0\.\d+\) · trainer -?[\d.]+, gap [+−]")
    )
    expect(read).to_contain_text(re.compile(r"entropy [\d.]+ nat · advantage [+−][\d.]+ · weight [01]"))
    chosen = page.locator("#tokens-of-turn-130 [aria-selected='true']")
    expect(chosen).to_have_attribute("data-token", str(at))
    expect(chosen).to_be_in_viewport()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(f"{product.url}/rollouts/{rollout.pk}/#t=130&tok={at + 1}")
    page.keyboard.press("Home")
    expect(read).to_contain_text(f"#{turn.token_start} ")
    page.keyboard.press("End")
    expect(read).to_contain_text("not sampled: no loss")  # what the tool answered
    page.locator("#tokens-of-turn-130 .tok--out").nth(5).hover()
    expect(read).to_contain_text(f"#{turn.token_start + 5} ")
    for colour in ("probability", "entropy", "gap", "advantage", "mask", "version"):
        page.select_option("[data-lens-colour]", colour)
        expect(page.locator("#tokens-of-turn-130 .legend > span").nth(1)).to_be_visible()
        assert page.locator("#tokens-of-turn-130 .tok[class*='heat-'], #tokens-of-turn-130 .tok[class*='ver-']").count()
    expect(page.locator("#tokens-of-turn-130 .legend")).to_contain_text(re.compile(r"version \d"))
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        for colour in ("probability", "gap"):
            page.select_option("[data-lens-colour]", colour)
            assert page.evaluate(AUDIT) == []
    page.locator("[data-lens-open='?turn=130']").click()
    expect(page.locator("#tokens-of-turn-130 .tok")).to_have_count(0)
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("t")
    expect(page.locator("#tokens-of-turn-130 .tokens")).to_be_focused()


def test_a_lens_says_what_is_not_known(operator: Page, product: Product) -> None:
    page = operator
    rollout = Rollout.objects.filter(group__evaluation__run=product.world.run).earliest("pk")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    page.get_by_role("button", name="tokens of segment 0").click()
    page.select_option("[data-lens-colour]", "entropy")
    expect(page.locator(".lens__why")).to_have_text(
        "Entropy is not known here. Only rollouts of a run are trained on; this one belongs to an evaluation."
    )
    page.select_option("[data-lens-colour]", "probability")
    expect(page.locator(".lens__why")).to_have_count(0)
