"""The same walk by mouse or by keyboard alone. `Keyboard` reaches a control by Tab, as somebody does who has no pointer."""

from __future__ import annotations

from typing import Protocol

from playwright.sync_api import Locator, Page, expect

MAX_STOPS = 250
"""Tab stops after which a control counts as out of reach."""
HAS_FOCUS = "element => element === document.activeElement"


class Hand(Protocol):
    presses: int
    """Clicks or pressed controls so far; text that is typed does not count."""

    def press(self, control: Locator) -> None: ...
    def write(self, field: Locator, text: str) -> None: ...
    def choose(self, field: Locator, label: str) -> None: ...
    def visit(self, page: Page, label: str) -> None:
        """Go to a page of the sidebar."""


class Mouse:
    def __init__(self) -> None:
        self.presses = 0

    def press(self, control: Locator) -> None:
        control.click()
        self.presses += 1

    def write(self, field: Locator, text: str) -> None:
        field.fill(text)

    def choose(self, field: Locator, label: str) -> None:
        field.select_option(label)

    def visit(self, page: Page, label: str) -> None:
        self.press(page.get_by_role("navigation", name="Main").get_by_role("link", name=label, exact=True))


class Keyboard:
    def __init__(self) -> None:
        self.presses = 0

    def reach(self, control: Locator) -> None:
        """Tab to a control. Raises AssertionError."""
        expect(control).to_be_visible()
        for _ in range(MAX_STOPS):
            if control.evaluate(HAS_FOCUS):
                return
            control.page.keyboard.press("Tab")
        raise AssertionError(f"{MAX_STOPS} Tab stops do not lead to {control}")

    def press(self, control: Locator) -> None:
        self.reach(control)
        ticked = control.evaluate("element => element.matches('[type=checkbox], [type=radio]')")
        control.page.keyboard.press("Space" if ticked else "Enter")
        self.presses += 1

    def write(self, field: Locator, text: str) -> None:
        self.reach(field)
        field.page.keyboard.press("Control+a")
        field.page.keyboard.type(text)

    def choose(self, field: Locator, label: str) -> None:
        self.reach(field)
        field.page.keyboard.type(label)

    def visit(self, page: Page, label: str) -> None:
        page.keyboard.press("Control+k")
        page.keyboard.type(label)
        expect(page.locator("#palette [role='option'][aria-selected='true']")).to_contain_text(label)
        page.keyboard.press("Enter")
        self.presses += 1
