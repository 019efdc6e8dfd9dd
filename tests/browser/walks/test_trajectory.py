"""Reading trajectories in a real browser: the token lens, by pointer and by keyboard, and links into it."""

from __future__ import annotations

import random
import re

import pytest
from playwright.sync_api import Page, Route, expect

from composer_web.live.hints import publish
from composer_web.review.models import Annotation
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import trajectory_store
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from tests.browser.conftest import Product
from tests.browser.episodes import finish_claimed
from tests.browser.pages.test_every_page import AUDIT
from trainer.types import Turn

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]


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


CLIPBOARD = ["clipboard-read", "clipboard-write"]
PLAIN_ADDRESS = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
"""What a browser offers at an address that is not secure."""


@pytest.mark.parametrize("secure", [True, False])
def test_y_copies_a_link_to_the_turn(operator: Page, product: Product, secure: bool) -> None:
    page, rollout = operator, long(product)
    page.context.grant_permissions(CLIPBOARD, origin=product.url)
    if not secure:
        page.add_init_script(PLAIN_ADDRESS)
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t=60")
    expect(page.locator("[data-turn='60']")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("y")
    expect(page.locator(".toasts .toast")).to_have_text("Link copied")
    expect(page.locator("[data-turn='61']")).to_be_focused()
    with page.context.expect_page() as opened:
        page.evaluate("() => { open('/tokens/') }")
    reader = opened.value
    reader.bring_to_front()
    assert reader.evaluate("navigator.clipboard.readText()") == f"{product.url}/rollouts/{rollout.pk}/#t=61"
    reader.close()


@pytest.mark.parametrize("index", [pytest.param(60, marks=pytest.mark.slow), 100])
def test_a_linked_turn_stays_where_it_is_while_its_neighbours_come(
    operator: Page, product: Product, index: int
) -> None:
    page, rollout = operator, long(product)
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t={index}")
    expect(page.locator(f"[data-turn='{index}']")).to_be_focused()
    page.wait_for_function("() => document.querySelectorAll('[data-window]').length >= 2")
    page.wait_for_load_state("networkidle")
    top = page.evaluate("index => document.querySelector(`[data-turn='${index}']`).getBoundingClientRect().top", index)
    assert 0 < top < 250


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


FAILING = (300, 1203)
"""Turns of the large trajectory in which something failed."""
LONGEST_TASK_MS = 1000
"""Bound on a busy machine. The goal of 100 is for `make bench NAME=web` on a quiet one."""

WATCH = """() => {
  window.longTasks = [];
  new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((one) => one.duration))).observe({type: "longtask"});
}"""


@pytest.mark.slow
def test_two_thousand_turns_of_fifty_megabytes_scroll(operator: Page, product: Product) -> None:
    page = operator
    page.set_viewport_size({"width": 1440, "height": 900})  # wide enough for the outline
    rollout = Rollout.objects.filter(group__run=product.world.run, group__prompt_index=2).latest("pk")
    turns = tuple(
        Turn(
            index=i,
            text=f"I look at part {i}.",
            token_start=0,
            token_end=0,
            calls=(ToolCall(id="c", name="terminal", arguments={"command": f"sed -n {i}p log"}),),
            results=(
                ToolResult(
                    call_id="c",
                    output=f"part {i}\n" + "lorem ipsum dolor sit amet\n" * 950,
                    error=ToolError(kind=ToolErrorKind.NOT_FOUND, message="gone") if i in FAILING else None,
                    seconds=0.1,
                ),
            ),
        )
        for i in range(2000)
    )
    large = selectors.trajectory(rollout).model_copy(update={"turns": turns})
    assert len(large.model_dump_json()) > 50_000_000
    trajectory_store.record(rollout.artifact_key, large)
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    page.evaluate(WATCH)
    for target in range(20, 121, 20):
        while not page.locator(f"[data-turn='{target}']").count():
            page.mouse.wheel(0, 2500)
            page.evaluate("() => new Promise(requestAnimationFrame)")
        page.locator(f"[data-turn='{target}']").scroll_into_view_if_needed()
    assert page.locator("[data-window]").count() <= 5
    assert page.locator("#turns [data-turn]").count() <= 100
    page.keyboard.press("g")
    page.keyboard.type("1500")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.is-current h3")).to_have_text("Turn 1500")
    expect(page.locator(".turn.is-current")).to_be_in_viewport()
    page.keyboard.press("Escape")
    while not page.locator("[data-turn='1479']").count():  # and back up
        page.mouse.wheel(0, -2500)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    page.evaluate(
        "scrollTo(0, document.querySelector('#turns').offsetTop + document.querySelector('#turns').offsetHeight / 4)"
    )
    expect(page.locator("#turns [data-turn]").first).to_be_attached()
    page.wait_for_function(
        "() => { const n = Number(document.querySelector('[data-window]').dataset.window); return n > 10 && n < 50; }"
    )
    strip, outline = page.locator("[data-strip]"), page.locator("#outline li")
    assert outline.count() < 60, "rows exist only where they are seen"
    expect(outline.first).to_have_attribute("aria-setsize", "2000")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] * 0.5, "y": 8})
    current = page.locator(".turn.is-current h3")
    expect(current).to_have_text(re.compile(r"Turn (99\d|100\d)$"))
    strip.focus()
    page.keyboard.press("End")
    expect(strip).to_have_attribute("aria-valuetext", "Turn 2000: terminal")
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowLeft")
    expect(strip).to_have_attribute("aria-valuenow", "1979")
    page.keyboard.press("Enter")
    expect(current).to_have_text("Turn 1979")
    expect(page.locator("#outline a[aria-current]")).to_contain_text("1979")
    page.keyboard.press("[")
    expect(current).to_have_text(f"Turn {FAILING[1] + 1}")
    page.keyboard.press("[")
    expect(current).to_have_text(f"Turn {FAILING[0] + 1}")
    expect(page.locator("#outline a[aria-current] .err")).to_be_visible()
    page.locator("#outline a[aria-current]").focus()
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    expect(page.locator("#outline a:focus")).to_have_attribute("href", f"#t={FAILING[0] + 30}")
    page.keyboard.press("Enter")
    expect(current).to_have_text(f"Turn {FAILING[0] + 31}")
    assert page.evaluate(AUDIT) == []
    longest = max(page.evaluate("longTasks"), default=0.0)
    assert longest < LONGEST_TASK_MS, f"a task of {longest:.0f} ms while scrolling"


FRAME = """() => {
  const strip = document.querySelector("[data-strip]");
  const scale = devicePixelRatio || 1;
  const row = strip.getContext("2d").getImageData(0, Math.round(19.5 * scale), strip.width, 1).data;
  const text = getComputedStyle(strip).color.match(/\\d+/g).map(Number);
  const drawn = (x) => row[4 * x + 3] > 128 && [0, 1, 2].every((part) => Math.abs(row[4 * x + part] - text[part]) < 90);
  const edges = Array.from({ length: strip.width }, (_, x) => x).filter(drawn).map((x) => x / scale);
  const middle = (Math.min(...edges) + Math.max(...edges)) / 2;
  return 1 + Math.floor(middle / (strip.clientWidth / Number(strip.getAttribute("aria-valuemax"))));
}"""
"""Number of the turn around which the frame is drawn: its upright lines are all that is between two lanes of the strip."""
FRAMED = f"number => ({FRAME})() === number && document.querySelector('[data-strip]').ariaValueNow === String(number)"
SCROLLED = """async (by) => {
  const strip = document.querySelector("[data-strip]");
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  const drawn = new Promise((done) => new MutationObserver(done).observe(strip, { attributeFilter: ["width"] }));
  scrollBy(0, by);
  await drawn;
}"""
"""Scroll, and wait until the strip has been drawn for it."""


def test_the_strip_frames_the_turn_that_it_says(operator: Page, product: Product) -> None:
    """The one that was gone to while it is on the screen, although another is in the middle of it; then the one that is."""
    page, rollout = operator, long(product)
    page.set_viewport_size({"width": 1440, "height": 1600})
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t=4")
    expect(page.locator(".turn.is-current h3")).to_have_text("Turn 5")
    page.wait_for_function(FRAMED, arg=5)
    middle = page.evaluate(
        "() => document.elementFromPoint(innerWidth / 2, innerHeight / 2).closest('[data-turn]')?.dataset.turn"
    )
    assert middle != "4", "another turn is in the middle of the screen"
    page.evaluate(SCROLLED, 8)
    assert page.evaluate(FRAMED, 5)
    page.keyboard.press("j")
    page.wait_for_function(FRAMED, arg=6)
    page.evaluate("() => document.querySelector(\"[data-turn='12']\").scrollIntoView({ block: 'center' })")
    page.wait_for_function(FRAMED, arg=13)
    strip = page.locator("[data-strip]")
    strip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(FRAMED, arg=15)
    strip.hover(position={"x": 3, "y": 8})
    expect(page.locator("[data-strip-says]")).to_contain_text("Turn 1:")
    assert page.evaluate(FRAMED, 15), "looking at another turn chooses none"
    page.keyboard.press("Enter")
    expect(page.locator(".turn.is-current h3")).to_have_text("Turn 15")


def test_chips_parts_and_the_whole_turn(operator: Page, product: Product) -> None:
    page, rollout = operator, long(product)
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.locator("#outline li").first).to_have_attribute("aria-setsize", "152")
    page.locator("[data-only='tool:read_file']").click()
    expect(page.locator("#outline li").first).to_have_attribute("aria-setsize", "75")
    expect(page.locator("#turns .call__name").first).to_have_text("read_file")  # it was grep
    expect(page.locator("#turns [data-turn='39']")).to_be_attached()
    expect(page).to_have_url(re.compile("only=tool%3Aread_file"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".turn.is-current h3")).to_have_text("Turn 4")
    expect(page.locator("#this-turn")).to_contain_text("tokens/s")
    page.locator("[data-part='output']").click()
    expect(page.locator("#turns .io").first).to_be_hidden()
    page.locator("[data-part='output']").click()
    page.goto(
        f"{product.url}/rollouts/{rollout.pk}/?only=tool:finish#t=3"
    )  # the link's turn is shown whatever the chips
    expect(page.locator(".turn.is-current h3")).to_have_text("Turn 4")
    expect(page.locator("[data-only='tool:finish']")).to_have_attribute("aria-pressed", "false")


def test_a_rollout_is_watched_while_it_runs(operator: Page, product: Product) -> None:
    page = operator
    pump(run_id=product.world.run.pk)
    rollout = Rollout.objects.filter(group__run=product.world.run, verdict="").earliest("pk")
    claim = services.claim(group_id=rollout.group_id, owner="tests@live/1", seconds=600)
    assert claim is not None
    whole = selectors.trajectory(long(product))
    copy = trajectory_store.Growing(trajectory_store.live_prefix(rollout.group_id, rollout.sample))
    copy.grow(whole.messages, whole.turns[:2])
    modules: list[Route] = []
    page.route(re.compile(r"/trajectory\b.*\.js$"), lambda route: modules.append(route))
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    expect(page.locator("#turns [data-turn]")).to_have_count(2)
    expect(page.locator("[data-live-badge]")).to_have_text("live")
    copy.grow(whole.messages, whole.turns[:4])  # a hint of it would come before the page's own module is there
    modules[0].continue_()
    expect(page.locator("#turns [data-turn]")).to_have_count(4)
    expect(page.locator("[data-growing]")).to_contain_text("This rollout runs")
    for turns in (15, 31):
        copy.grow(whole.messages, whole.turns[:turns])
        publish(f"group:{rollout.group_id}")
        expect(page.locator(f"[data-turn='{min(turns, 20) - 1}']")).to_be_attached()
        expect(page.locator("#outline li").first).to_have_attribute("aria-setsize", str(turns))
    finish_claimed(claim, draw=random.Random(2))
    expect(page.locator("#report")).to_be_visible()
    expect(page.locator("[data-growing]")).to_have_count(0)


def test_a_refresh_leaves_the_comment_form_that_was_just_opened(operator: Page, product: Product) -> None:
    """Not a letter is written yet, and what is typed next belongs in it."""
    page, rollout = operator, Rollout.objects.filter(group__run=product.world.run, verdict="failed").latest("pk")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    page.keyboard.press("c")
    expect(page.locator("#comment-text")).to_be_focused()
    with page.expect_response(lambda answer: answer.request.headers.get("hx-target") == "annotations"):
        page.evaluate("htmx.trigger('#annotations', 'oc:refresh')")
    page.evaluate("new Promise(requestAnimationFrame)")
    page.keyboard.type("It repeats itself here")
    expect(page.locator("#comment-text")).to_have_value("It repeats itself here")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#annotations .comment")).to_contain_text("It repeats itself here")


def test_a_rollout_is_annotated_by_keyboard_alone(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    failed = list(Rollout.objects.filter(group__run=run, verdict="failed").order_by("-pk"))
    page.goto(f"{product.url}/rollouts/{failed[0].pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    page.keyboard.press("f")
    expect(page).to_have_url(f"{product.url}/rollouts/{failed[1].pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    bar = page.locator("#annotations")
    mine = bar.get_by_role("group", name="Your verdict")
    for key, name in (("1", "Good"), ("3", "Unsure"), ("2", "Bad")):
        page.keyboard.press(key)
        expect(mine.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        expect(mine.locator("[aria-pressed='true']")).to_have_count(1)
    page.keyboard.press("r")
    expect(bar.get_by_role("button", name="Needs review")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("#")
    page.keyboard.type("loops")
    page.keyboard.press("Enter")
    expect(bar.get_by_role("link", name="loops")).to_be_visible()
    page.keyboard.press("Escape")
    bar.locator("#assign").focus()  # a refresh replaces the bar, and the focus stays
    page.keyboard.press("Enter")
    expect(page.locator("#assign-panel button").first).to_be_visible()
    page.keyboard.press("Tab")
    first = page.locator("#assign-panel button").first
    expect(first).to_be_focused()
    name = first.get_attribute("value")
    assert name
    page.keyboard.press("Enter")
    expect(bar.locator("#assign")).to_have_text(re.compile(name))
    page.locator("h1").click()  # away from the menu
    page.keyboard.press("j")
    page.keyboard.press("t")
    expect(page.locator("#tokens-of-turn-0 .tokens")).to_be_focused()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("c")
    expect(page.locator("[data-comment-place]")).to_have_text("On turn 1, tokens 0 to 3")
    page.keyboard.type("It repeats itself here")
    page.keyboard.press("Control+Enter")
    comment = page.locator("#comments-of-turn-0 .comment")
    expect(comment).to_contain_text("It repeats itself here")
    expect(bar.locator(".comment")).to_contain_text("turn 1, tokens 0 to 3")
    found = Annotation.objects.filter(rollout=failed[1], removed_at=None).values_list("kind", "value", "token_end")
    assert sorted(found) == [
        ("assignee", "", None), ("comment", "", 4), ("needs_review", "", None), ("tag", "loops", None),
        ("verdict", "bad", None),
    ]  # fmt: skip


def test_a_key_that_follows_at_once_meets_buttons_that_work(operator: Page, product: Product) -> None:
    page, rollout = operator, Rollout.objects.filter(group__run=product.world.run, verdict="failed").earliest("pk")
    address = f"{product.url}/rollouts/{rollout.pk}/"
    page.goto(address)
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    press = """() => new MutationObserver((_, watcher) => {
        const next = document.querySelector('#verdict-good[aria-pressed=true]');
        if (!next) return;
        watcher.disconnect();
        document.querySelector('#verdict-bad').click();
    }).observe(document.body, {childList: true, subtree: true})"""
    page.evaluate(press)
    page.evaluate("window.unbroken = true")
    page.keyboard.press("1")
    expect(page.locator("#verdict-bad")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("window.unbroken"), "no key loads the page anew"


def test_all_siblings_fit_and_what_differs_is_read_whole_without_a_mouse(operator: Page, product: Product) -> None:
    page, group = operator, long(product).group
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{product.url}/groups/{group.pk}/")
    heads = page.locator(".table--columns thead th")
    expect(heads).to_have_count(1 + 8)
    expect(heads.last).to_be_in_viewport(ratio=1)
    room = page.locator(".tablewrap:has(.table--columns)")
    assert room.evaluate("one => one.scrollWidth <= one.clientWidth"), "the eighth needs no scrolling"
    page.set_viewport_size({"width": 1440, "height": 900})
    under = page.locator(".table--columns tbody tr").first.bounding_box()
    head = heads.last.bounding_box()
    assert head and under and head["y"] + head["height"] <= under["y"] + 1, "the head covers no row"
    page.set_viewport_size({"width": 1280, "height": 800})
    clamped = "() => document.querySelectorAll('.way').values().filter((one) => one.scrollHeight > one.clientHeight).toArray()"
    cut = page.evaluate_handle(f"({clamped})()[0]").as_element()
    assert cut is not None, "some text has more than four lines"
    cut.evaluate("one => one.closest('tr').querySelector('[data-ways]').focus()")
    page.keyboard.press("Enter")
    expect(page.locator("[data-ways='row']:focus")).to_have_attribute("aria-expanded", "true")
    assert cut.evaluate("one => one.scrollHeight <= one.clientHeight")
    page.get_by_role("button", name="Show whole text").click()
    expect(page.locator("[data-ways='row'][aria-expanded='false']")).to_have_count(0)
    assert page.evaluate(f"({clamped})().length") == 0
