"""Charts, lists and the forms of curation while somebody works with them: states without an address (`states.py`)."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page


def charts_edited(page: Page, url: str) -> None:
    """Panels of a run while they are arranged."""
    page.goto(f"{url}/runs/?state=running")
    page.locator("td.strong a").first.click()
    page.get_by_role("navigation", name="Run", exact=True).get_by_role("link", name="Charts").click()
    page.locator("[data-chart][data-points]").first.wait_for()
    page.locator("[data-grid-edit]").click()
    page.locator("[data-grid-add]").wait_for()


def chart_enlarged(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/?state=running")
    page.locator("td.strong a").first.click()
    page.locator("[data-chart][data-points]").first.wait_for()
    page.get_by_role("button", name="full screen").first.click()
    page.wait_for_function("() => document.fullscreenElement?.matches('[data-chart]')")


def added_to_report(page: Page, url: str) -> None:
    """The dialog that asks which report a chart is added to."""
    page.goto(f"{url}/runs/?state=running")
    page.locator("td.strong a").first.click()
    page.locator("[data-chart][data-points]").first.wait_for()
    page.get_by_role("button", name="to a report").first.click()
    page.locator("dialog.addreport[open]").wait_for()


def previewed(path: str) -> Callable[[Page, str], None]:
    """A row's content beside the list, for which the screen has to be wide."""

    def arrange(page: Page, url: str) -> None:
        page.set_viewport_size({"width": 1920, "height": 1080})
        page.goto(url + path)
        page.locator("#preview").wait_for()
        page.locator("#rows td.strong a").first.focus()
        page.locator("#rows tr.is-current").wait_for()

    return arrange


def bulk(path: str) -> Callable[[Page, str], None]:
    """Rows ticked, with what can be done with them."""

    def arrange(page: Page, url: str) -> None:
        page.goto(url + path)
        for box in page.locator("[data-tick]").all()[:2]:
            box.check()
        page.locator("#bulk:not([hidden])").wait_for()

    return arrange


def moved_out(page: Page, url: str) -> None:
    """The question before tasks leave training."""
    bulk("/tasks/?suite=train")(page, url)
    page.locator("#bulk").get_by_role("button", name="Move out of training").click()
    page.locator("dialog.confirm[open]").wait_for()


def refused_curation(page: Page, url: str) -> None:
    """Training tasks that a held-out suite does not take, with what may be done about it."""
    bulk("/tasks/?suite=train")(page, url)
    page.locator("[name='value_suite']").fill("held-out")
    page.locator("#bulk").get_by_role("button", name="Add to suite").click()
    page.locator("button[form='bulk']").first.wait_for()


def refused_release(page: Page, url: str) -> None:
    """Tasks that two reviewers have not admitted are no benchmark: what was typed stays."""
    page.goto(f"{url}/evaluations/releases/?suite=held-out#publish")
    page.locator("#publish [name='benchmark']").fill("walked")
    page.locator("#publish").get_by_role("button", name="Publish").click()
    page.locator("#publish [role='alert']").wait_for()


ARRANGED: dict[str, Callable[[Page, str], None]] = {
    "charts-edited": charts_edited,
    "chart-enlarged": chart_enlarged,
    "chart-to-report": added_to_report,
    "rollouts-preview": previewed("/rollouts/"),
    "tasks-preview": previewed("/tasks/"),
    "evaluations-preview": previewed("/evaluations/"),
    "policies-preview": previewed("/policies/"),
    "findings-preview": previewed("/findings/"),
    "suites-preview": previewed("/suites/"),
    "review-preview": previewed("/review/"),
    "rollouts-ticked": bulk("/rollouts/?verdict=failed"),
    "tasks-ticked": bulk("/tasks/"),
    "findings-ticked": bulk("/findings/"),
    "evaluations-ticked": bulk("/evaluations/"),
    "tasks-move-out": moved_out,
    "curation-refused": refused_curation,
    "release-refused": refused_release,
}
"""All of them by name."""
