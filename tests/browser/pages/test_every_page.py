"""Every page in both themes, wide, narrow and on a 4K screen: no console error, nothing that the content policy refused, what
`audit.js` asks of contrast, names, headings and width, nothing that axe finds, and nothing that moves against a person's wish."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from composer_web.core import inference
from composer_web.runs.models import Run
from composer_web.runs.paths import deployment_name
from tests.browser import corners, seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.pages.test_accessibility import judge
from tests.browser.places import places
from tests.browser.screenshots import log_in, settle
from trainer.inference.contract import (
    DeploymentStatus,
    EngineStatus,
    ServerHealth,
    ServerStatus,
    SyncTimings,
)

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]

AUDIT = (Path(__file__).parent / "audit.js").read_text()
SIZES = {"wide": (1280, 800), "narrow": (360, 800)}
LARGEST = (3840, 2160)
KEY_PAGES = frozenset({"home", "runs", "run-form", "trajectory", "group", "task-review"})
"""Pages of the daily jobs, which axe judges in every run of the tests; colours it judges only thoroughly, for `audit.js` looks
at contrast too."""
COSTLY = frozenset({"api", "run-charts", "run-supervised", "sweep", "compare", "release-refreshed"})
"""Left to the thorough visit: the API's whole description, and second pages of many charts; the walks open sweeps and
comparisons, and fail on a console error too."""
FILLS = """() => {
  const page = document.querySelector(".page:not(.page--narrow)");
  const found = page && page.offsetWidth < 0.75 * innerWidth ? [`the page fills ${page.offsetWidth} of ${innerWidth}`] : [];
  return document.documentElement.scrollWidth > innerWidth ? [...found, "the page scrolls sideways"] : found;
}"""
REFUSALS = (
    "addEventListener('securitypolicyviolation', e => console.error(`refused: ${e.violatedDirective} ${e.sourceFile}`))"
)


def watch(context: BrowserContext) -> tuple[Page, list[str]]:
    """A tab and the list into which it writes each error, warning and refusal."""
    context.add_init_script(REFUSALS)
    page, problems = context.new_page(), []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(message.text)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", note)
    return page, problems


@pytest.fixture(scope="module")
def product(product: Product, django_db_blocker: pytest.FixtureRequest) -> Product:
    """With one of each thing that has a page."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        corners.corners(product.world)
    return product


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_page(chrome: Browser, product: Product, db: None, thorough: bool) -> None:
    """One visit of each page serves all of it: `audit.js`, and axe on the key pages; thoroughly axe on all of them, both
    themes, two widths, and the width on the largest screen."""
    themes, sizes = (("light", "dark"), SIZES) if thorough else (("light",), {"wide": SIZES["wide"]})
    context = chrome.new_context(color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page, problems = watch(context)
    wrong: dict[str, list[str]] = {}
    page.goto(f"{product.url}/login/")
    if found := judge(page):
        wrong["login"] = found
    log_in(page, product.url, "admin", seed.PASSWORD)
    plain = chrome.new_context(java_script_enabled=False, storage_state=context.storage_state())
    found_places = places(
        plain.new_page(), product.url
    )  # links stand in the first answer: no script need run to find them
    plain.close()
    assert found_places.keys() >= {
        "sweep",
        "draft",
        "imported",
        "task-history",
        "session",
        "endpoint",
        "finding",
        "people",
    }
    for name, path in {**found_places, "nothing": "/nothing/"}.items():
        if name in COSTLY and not thorough:
            continue
        problems.clear()
        page.emulate_media(color_scheme="light")
        page.goto(product.url + path)
        for theme in themes:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            for size, (width, height) in sizes.items():
                page.set_viewport_size({"width": width, "height": height})
                settle(page)
                found = page.evaluate(AUDIT)
                found += [text for text in problems if name != "nothing" or "404" not in text]
                problems.clear()
                if found:
                    wrong[f"{name}, {theme}, {size}"] = found
        if thorough:
            page.set_viewport_size({"width": LARGEST[0], "height": LARGEST[1]})
            if found := page.evaluate(FILLS):
                wrong[f"{name}, largest"] = found
        page.set_viewport_size({"width": 1280, "height": 800})
        if (thorough or name in KEY_PAGES) and (found := judge(page, colours=thorough)):
            wrong[f"{name}, axe"] = found
    context.close()
    assert not wrong, "\n".join(f"{place}:\n  " + "\n  ".join(found) for place, found in wrong.items())


def test_the_bar_fits_whatever_it_says(operator: Page, product: Product) -> None:
    """Between a telephone and a wide screen too, with the longest words about the connection."""
    page = operator
    page.goto(f"{product.url}/tokens/")
    expect(page.locator("[data-live-badge]")).to_have_text("live")
    wrong = []
    for words in (
        "live",
        "stale since 12:34:56",
        "paused, newer data waits",
        "not live: close other tabs",
        "logged out",
    ):
        page.evaluate("words => document.querySelector('[data-live-badge]').textContent = words", words)
        for width in (360, 700, 780, 900, 1000, 1100, 1200, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            if (needed := page.evaluate("document.documentElement.scrollWidth")) > width:
                wrong.append(f"{words!r} at {width} needs {needed}")
    assert not wrong, wrong


WORDS = (
    "it computes other log-probabilities than what was published (0.41 nats over 64 tokens): restart it; it is left out"
)
FAR = "http://inference-engine-0004.eu-west-training-cluster.svc.internal.example:8100"


def engines(run: Run) -> ServerHealth:
    """A router before engines of every standing: well, sick, leaving, of several clusters, with names of any length."""
    name = deployment_name(run)
    spent = {"fetch": 0.21, "decode": 0.4, "wait": 0.05, "pause": 0.31, "apply": 0.3, "resume": 0.01}
    sync = SyncTimings(version=run.policy_version, kind="delta", bytes=48 << 20, **spent)
    every = [
        EngineStatus(url="http://10.20.0.1:8100", cluster="stack", version=run.policy_version, last_sync=sync),
        EngineStatus(url=FAR, cluster="eu-west-training-cluster", version=0, proof="differs", error=WORDS),
    ]
    deployments = [
        DeploymentStatus(
            name=name, version=0, digest="d" * 64, state="serving", follow=True, running=212, waiting=37, last_sync=sync,
            engines=every, error="1 of 2 engines computes something else",
        ),
        DeploymentStatus(
            name="evaluation-of-something-with-a-long-name", version=3, digest="d", state="failed", follow=False, error=WORDS
        ),
    ]  # fmt: skip
    model = "/models/Some-Coder-30B-A3B-Instruct"
    servers = [
        ServerStatus(url="http://10.20.0.1:8100", ok=True, deployment=f"{name}, {deployments[1].name}", running=90),
        ServerStatus(url="http://10.20.0.3:8100", ok=True, deployment=name, model=model, leaving=True, running=12),
        ServerStatus(url=FAR, ok=False, deployment=name, error=WORDS),
    ]
    return ServerHealth(
        ok=False, engine="router", deployments=deployments, servers=servers, error="1 engine is not well"
    )


@pytest.mark.slow
def test_engines_of_every_standing(
    chrome: Browser, product: Product, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the system page and on a run's board."""
    run = Run.objects.get(pk=product.world.run.pk)
    monkeypatch.setattr(inference, "health", lambda **_: engines(run))
    wrong: dict[str, list[str]] = {}
    for theme in ("light", "dark"):
        context = chrome.new_context(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        page, problems = watch(context)
        log_in(page, product.url, "operator", seed.PASSWORD)
        for path, part in (("/system/", "#system"), (f"/runs/{run.pk}/system/", "#run-clusters")):
            page.goto(product.url + path)
            page.evaluate("part => document.querySelector(part).scrollIntoView()", part)
            expect(page.locator(part)).to_contain_text("off the list; still runs 12")
            for size, (width, height) in SIZES.items():
                page.set_viewport_size({"width": width, "height": height})
                settle(page)
                if found := page.evaluate(AUDIT) + problems:
                    wrong[f"{path}, {size}, {theme}"] = found
                problems.clear()
        context.close()
    assert not wrong, "\n".join(f"{place}:\n  " + "\n  ".join(found) for place, found in wrong.items())


@pytest.mark.slow
def test_api_documentation_can_be_tried(chrome: Browser, product: Product, db: None) -> None:
    context = chrome.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page, problems = watch(context)
    log_in(page, product.url, "operator", seed.PASSWORD)
    # The first to ask for the description has it made, which takes a busy machine long: that is not what is tried here.
    assert context.request.get(f"{product.url}/api/v1/openapi.json", timeout=4 * PATIENCE_MS).ok
    page.goto(f"{product.url}/api/v1/docs")
    page.locator(".opblock-get", has_text="List runs").locator("button.opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute", exact=True).click()
    expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    expect(page.locator(".live-responses-table")).to_contain_text("RL on small repositories")
    context.close()
    assert not problems, problems
