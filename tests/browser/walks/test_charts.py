"""Charts in the browser: the panel grid, the cursor, axes and ticks, and a report from a chart to its reader."""

from __future__ import annotations

import random
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from composer_web.runs import metrics, services
from tests.browser import seed
from tests.browser.conftest import Product
from tests.browser.screenshots import log_in, settle
from tests.browser.walking import picture

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
TITLES = (
    "[...document.querySelectorAll('[data-grid-room] .chart__title')].map((one) => one.firstChild.textContent.trim())"
)
FILLS = """() => [...document.querySelectorAll('[data-points]')].every((chart) => {
  const [room, drawn] = ['.chart__plot', '.main-svg'].map((name) => chart.querySelector(name).getBoundingClientRect());
  return Math.abs(room.width - drawn.width) < 2 && Math.abs(room.height - drawn.height) < 2;
})"""
"""Every drawing is as large as its place."""


def panel(page: Page, title: str) -> Locator:
    return page.locator("[data-chart]").filter(has=page.locator(".chart__title", has_text=title))


def width(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["width"]


def drag(page: Page, moved: Locator, over: Locator) -> None:
    """Take a panel or block by its handle and drop it on the upper left of another one."""
    moved.locator(".chart__handle").hover()
    page.mouse.down()
    page.mouse.move(0, 300, steps=2)  # begins before the target is scrolled to
    over.hover(position={"x": 30, "y": 20})
    page.mouse.up()


def test_panels_are_added_resized_moved_and_kept(operator: Page, product: Product) -> None:
    page, run = operator, product.world.other
    metrics.record_many(run=run, rows=[(step, "custom/zeros", 0.0) for step in range(1, 21)])
    page.goto(f"{product.url}/runs/{run.pk}/charts/")
    settle(page)
    page.click("[data-grid-edit]")
    add = page.locator("[data-grid-add]")
    add.get_by_label("Metric", exact=True).fill("custom/zeroes")
    add.get_by_label("Section of the panel").fill("Mine")
    add.get_by_label("Title of the panel").fill("Zeros")
    add.get_by_role("button", name="Add panel").click()
    expect(add.get_by_role("alert")).to_contain_text("nearest: custom/zeros")
    add.get_by_label("Metric", exact=True).fill("custom/zeros")
    add.get_by_role("button", name="Add panel").click()
    zeros = panel(page, "Zeros")
    expect(zeros).to_have_attribute("data-points", "20")
    expect(add.get_by_label("Metric", exact=True)).to_have_value("")
    expect(page.locator(".charts__section")).to_have_text(["Mine"])
    # A series that never leaves zero has an axis from zero.
    assert zeros.evaluate("(one) => one.querySelector('.chart__plot')._fullLayout.yaxis.range") == [0, 1]

    narrow = width(zeros.locator(".main-svg").first)
    zeros.get_by_role("button", name="Width of Zeros").click()
    expect(zeros).to_have_class(re.compile(r"chart--2"))
    page.wait_for_function("(was) => document.querySelector('.chart--2 .main-svg').clientWidth > 1.5 * was", arg=narrow)
    handle = zeros.get_by_role("button", name="Size of Zeros")
    handle.press("ArrowDown")
    expect(zeros).to_have_class(re.compile(r"chart--high-2"))
    handle.press("ArrowLeft")
    expect(zeros).not_to_have_class(re.compile(r"chart--2"))
    handle.scroll_into_view_if_needed()
    corner = handle.bounding_box()
    assert corner is not None
    x, y = corner["x"] + 12, corner["y"] + 12
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + narrow, y, steps=4)
    page.mouse.up()
    expect(zeros).to_have_class(re.compile(r"chart--2.* chart--high-2|chart--high-2.* chart--2"))

    zeros.get_by_role("button", name="Pin Zeros").click()
    expect(page.locator(".charts__section")).to_have_count(0)
    assert page.evaluate(TITLES)[0] == "Zeros", "pinned panels come first"
    zeros.get_by_role("button", name="Pin Zeros").click()
    handles = page.locator(".chart__handle")
    drag(page, panel(page, "Held-out evaluation"), panel(page, "Entropy and gradient norm"))
    moved = page.evaluate(TITLES)
    assert abs(moved.index("Held-out evaluation") - moved.index("Entropy and gradient norm")) == 1, moved
    section = page.get_by_label("Section of Entropy and gradient norm")
    section.fill("Learning")
    section.press("Tab")
    expect(page.locator(".charts__section", has_text="Learning")).to_be_visible()
    assert handles.count() == len(moved)

    good = zeros.get_attribute("data-spec")
    zeros.evaluate("(one) => (one.dataset.spec = one.dataset.spec.replace('\"size\":2', '\"size\":9'))")
    page.click("text=Save for this run")
    expect(page.locator("#panels-refused")).to_contain_text("Zeros: size: ")
    expect(page.locator(".charts__section", has_text="Learning")).to_be_visible()
    zeros.evaluate("(one, good) => (one.dataset.spec = good)", good)
    shown = page.evaluate(TITLES)
    picture(page, "charts-editing", "1440", "390")
    page.click("text=Save for this run")
    expect(page.locator(".gridbar")).to_contain_text("Panels of this run")
    assert page.evaluate(TITLES) == shown
    expect(zeros).to_have_class(re.compile(r"chart--2.* chart--high-2"))
    expect(page.locator(".charts__section", has_text="Learning")).to_be_visible()


@pytest.mark.parametrize("size", [(1280, 800), (1440, 900)])
@pytest.mark.parametrize("steps", [1, 2])
def test_the_steps_of_a_short_run_are_whole_and_each_is_written_once(
    operator: Page, product: Product, steps: int, size: tuple[int, int]
) -> None:
    page, other = operator, product.world.other
    run = services.start_run(run=services.create_run(config=other.configuration, parent=other))
    services.mark_running(run=run, owner="trainer@seed/0")
    seed.curves(run, range(1, steps + 1), draw=random.Random(steps))
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{product.url}/runs/{run.pk}/charts/")
    settle(page)
    drawn = page.locator("[data-chart][data-points]")
    expect(drawn.locator(".xtick").first).to_be_visible()
    for index in range(drawn.count()):
        ticks = drawn.nth(index).locator(".xtick text").all_text_contents()
        assert ticks and set(ticks) <= {str(step) for step in range(steps + 2)}, ticks
        assert len(set(ticks)) == len(ticks) and {str(step) for step in range(1, steps + 1)} <= set(ticks), ticks


def test_a_value_is_the_same_in_tile_chart_and_table(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/runs/{run.pk}/")
    settle(page)

    def tile(label: str) -> Locator:
        return page.locator(".figure", has=page.get_by_role("button", name=label, exact=True))

    reward = tile("Reward").locator(".figure__value").inner_text()
    best = tile("Reward").locator(".figure__note").inner_text().removeprefix("best of 8: ")
    pass1 = tile("Held-out pass@1").locator(".figure__value").inner_text()
    assert len({reward, best, pass1}) == 3
    chart = panel(page, "Reward").first
    expect(chart.locator(".chart__last")).to_have_text(reward)
    expect(chart.locator(".chart__key", has_text="mean")).to_contain_text(reward)
    expect(chart.locator(".chart__key", has_text="best of K")).to_contain_text(best)
    held_out = panel(page, "Held-out evaluation").first
    held_out.scroll_into_view_if_needed()
    expect(held_out.locator(".chart__key", has_text="pass@1")).to_contain_text(pass1)
    page.goto(f"{product.url}/runs/?cols=reward,best_reward,pass1")
    row = page.locator("#rows tbody tr", has=page.get_by_role("link", name=run.name, exact=True))
    expect(row.locator("td.num")).to_have_text([reward, f"{best} of 8", pass1])


def test_one_cursor_leads_from_any_chart_to_the_rollouts_of_a_step(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/runs/{run.pk}/charts/?from=3&to=6")
    settle(page)
    reward, entropy = panel(page, "Reward").first, panel(page, "Zero-advantage groups")
    ticks = reward.locator(".xtick text").all_text_contents()
    assert ticks == ["3", "4", "5", "6"]
    below, plot = reward.locator(".chart__legend").bounding_box(), reward.locator(".chart__plot").bounding_box()
    assert below is not None and plot is not None and below["y"] >= plot["y"] + plot["height"]
    reward.locator(".chart__area").hover()
    expect(entropy.locator(".chart__last")).to_contain_text(re.compile(r"step [45]"))
    expect(entropy.locator(".chart__cursor")).to_be_visible()
    reward.locator(".chart__area").focus()
    page.mouse.move(0, 0)
    reward.locator(".chart__area").press("Home")
    for shown in (reward, entropy):
        expect(shown.locator(".chart__last")).to_contain_text("step 3")
    enlarge = reward.get_by_role("button", name="full screen")
    enlarge.click()
    page.wait_for_function("() => document.fullscreenElement?.matches('[data-chart]')")
    page.wait_for_function(FILLS)
    enlarge.click()
    page.wait_for_function("() => !document.fullscreenElement")
    page.wait_for_function(FILLS)
    reward.locator(".chart__area").press("End")
    reward.locator(".chart__area").press("Enter")
    expect(page).to_have_url(f"{product.url}/runs/{run.pk}/rollouts/?step_min=6&step_max=6")


def test_a_report_from_a_chart_to_its_reader(operator: Page, product: Product) -> None:
    page, run, other = operator, product.world.run, product.world.other
    page.goto(f"{product.url}/runs/{run.pk}/charts/?smooth=0.6")
    settle(page)
    page.get_by_role("button", name="Add Entropy and gradient norm to a report").click()
    dialog = page.locator("dialog.addreport")
    dialog.get_by_label("Title of the new report").fill("Week 1")
    dialog.get_by_role("button", name="Add to report").click()
    dialog.get_by_role("link", name="Week 1").click()
    expect(page.locator("h1")).to_have_text("Week 1")
    settle(page)
    expect(page.locator("[data-chart]")).to_have_attribute("data-smooth", "0.6")

    page.get_by_role("link", name="Edit").click()
    page.get_by_role("button", name="Add panel").click()
    added = page.locator("[data-block]").nth(1)
    added.get_by_label("Add a metric").fill("reward/meen")
    added.get_by_label("Add a metric").press("Enter")
    expect(added).to_contain_text("nearest: reward/mean")
    added.get_by_label("Add a metric").fill("reward/mean")
    added.get_by_label("Add a metric").press("Enter")
    for one in (run, other):
        added.get_by_label("Add a run").fill(f"{one.name} #{one.pk}")
        added.get_by_label("Add a run").press("Enter")
        expect(added.get_by_role("checkbox", name=one.name)).to_be_checked()  # the chart names it, too
    expect(added.locator("[data-chart]")).to_have_attribute("data-points", re.compile(r"^\d+$"))
    page.get_by_role("button", name="Add text").click()
    page.locator("[data-block] textarea").fill("## Why\n\nIt learns **earlier**. <script>alert(1)</script>")
    words = page.locator("[data-block]").nth(2)
    words.get_by_role("button", name="Move up").click()
    drag(page, page.locator("[data-block]").nth(1), page.locator("[data-block]").nth(0))
    kinds = "[...document.querySelectorAll('[data-block] > legend')].map((one) => one.textContent)"
    assert page.evaluate(kinds) == ["Text", "Panel", "Panel"]
    picture(page, "report-edit", "1440", "390")
    page.get_by_label("Title", exact=True).fill(" ")
    page.get_by_role("button", name="Save report").click()
    expect(page.get_by_role("alert").first).to_contain_text("Report not saved")
    expect(page.locator("[data-block] textarea")).to_have_value(re.compile("It learns"))
    page.get_by_label("Title", exact=True).fill("Week 1, explained")
    page.get_by_role("button", name="Save report").click()
    expect(page.locator("h1")).to_have_text("Week 1, explained")

    address = page.url
    page.goto("about:blank")  # a request of the old page would bring its cookies back
    page.context.clear_cookies()
    log_in(page, product.url, "viewer", seed.PASSWORD)
    page.goto(address)
    settle(page)
    expect(page.locator(".report__text h3")).to_have_text("Why")
    expect(page.locator(".report__text")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("[data-chart]")).to_have_count(2)
    expect(page.locator("[data-chart] .chart__key", has_text=other.name)).to_be_visible()
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".toasts")).to_contain_text("Copied")
    picture(page, "report", "1440", "390")


@pytest.mark.slow
def test_charts_axes_and_zoom_live_in_the_address(operator: Page, product: Product) -> None:
    page, path = operator, f"{product.url}/runs/{product.world.run.pk}/charts/"
    page.goto(path)
    settle(page)
    first = page.locator("[data-chart]").first
    page.evaluate("Plotly.relayout(document.querySelector('[data-chart] .chart__plot'), {'xaxis.range': [5, 9]})")
    expect(first).to_have_attribute("data-points", "5")
    expect(page).to_have_url(re.compile("from=5&to=9"))
    page.click("button[value='log']")
    page.get_by_label("Smoothing").fill("0.9")
    page.reload()
    settle(page)
    expect(first).to_have_attribute("data-points", "5")
    expect(page.locator("button[value='log']")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Smoothing")).to_have_value("0.9")
    page.click("button[value='tokens']")
    expect(first).to_have_attribute("data-points", re.compile(r"^\d\d$"))  # the zoom was of another axis
    expect(page).to_have_url(f"{path}?y=log&smooth=0.9&x=tokens")
    assert page.locator("[data-further]").count() == 0
    page.click("summary:has-text('more metrics')")
    page.fill("[data-chart-search]", "learning")
    expect(page.locator("[data-further]:visible")).to_have_count(1)
    expect(page.locator("[data-further]:visible")).to_have_attribute("data-points", re.compile(r"^\d+$"))


SMOOTHED = """() => {
  const line = document.querySelector('[data-series*="reward/mean"] .chart__plot').data.find((trace) => trace.name === "mean");
  return Object.fromEntries(line.x.map((x, i) => [x, line.y[i]]));
}"""


@pytest.mark.slow
def test_a_smoothed_curve_does_not_depend_on_the_zoom(operator: Page, product: Product) -> None:
    page, path = operator, f"{product.url}/runs/{product.world.other.pk}/charts/?smooth=0.9"
    reward = page.locator('[data-series*="reward/mean"]').first
    page.goto(path)
    settle(page)
    whole = page.evaluate(SMOOTHED)
    page.goto(f"{path}&from=8&to=14")
    settle(page)
    expect(reward).to_have_attribute("data-points", "7")
    zoomed = page.evaluate(SMOOTHED)
    assert zoomed == {step: pytest.approx(whole[step]) for step in map(str, range(8, 15))}


def test_charts_are_drawn_one_a_frame(operator: Page, product: Product) -> None:
    """A page that draws all of them at once answers nobody until the last one stands."""
    page = operator
    page.add_init_script(
        """window.drawn = [];
        new MutationObserver((changes) => {
          const charts = changes.filter(({ target }) => target.matches("[data-chart]"));
          if (charts.length) drawn.push(charts.length);
        }).observe(document, { subtree: true, attributeFilter: ["data-points"] });
        window.frames_ = [];
        const tick = () => { frames_.push(drawn.length); requestAnimationFrame(tick); };
        requestAnimationFrame(tick);"""
    )
    page.goto(f"{product.url}/runs/{product.world.other.pk}/charts/")
    settle(page)
    page.wait_for_function("() => document.querySelectorAll('[data-chart][data-points]').length >= 6")
    assert max(page.evaluate("drawn")) == 1
    most = page.evaluate("Math.max(...frames_.map((n, i) => n - (frames_[i - 1] ?? 0)))")
    assert most == 1, f"{most} charts between two frames"


def test_panels_in_sight_share_a_request(operator: Page, product: Product) -> None:
    page, asked = operator, []
    page.on("request", lambda request: asked.append(request.url) if "/metrics/" in request.url else None)
    # Over time every panel asks; over steps a push may come first.
    page.goto(f"{product.url}/runs/{product.world.run.pk}/charts/?x=time")
    page.wait_for_function("() => document.querySelectorAll('[data-chart][data-points]').length >= 4")
    drawn = page.locator("[data-chart][data-points]").count()
    assert len(asked) < drawn, f"{drawn} panels made {len(asked)} requests"
    assert max(url.count("%2C") + 1 for url in asked) > 3
