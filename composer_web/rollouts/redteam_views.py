"""View of the red team: the table stored by the last `make redteam`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from composer_web.env import env
from composer_web.rollouts import findings
from composer_web.ui.pages import Figure, PageRequest, page, show
from composer_web.ui.templatetags import ui
from sandbox.grading.redteam import RedTeam, Row, load


@dataclass(frozen=True)
class Line:
    """One exploit with its result per backend; None for backends on which it did not run."""

    id: str
    title: str
    defence: str
    cells: list[Row | None]

    @property
    def rules(self) -> list[tuple[str, str]]:
        """(id, title) of the expected findings raised on any backend."""
        raised = {rule for row in self.cells if row for rule in row.exploit.rules if rule in row.wanted}
        return [(rule, findings.RULE_TITLES.get(rule, rule)) for rule in sorted(raised)]

    @property
    def faults(self) -> list[str]:
        return [f"{row.backend}: {fault}" for row in self.cells if row for fault in row.faults]

    @property
    def unguarded(self) -> bool | None:
        """Whether the exploit is rewarded without its defence. None if that could not be tested."""
        tried = [row.unguarded for row in self.cells if row and row.unguarded is not None]
        return all(tried) if tried else None


@require_safe
@page()
def red_team(request: PageRequest) -> HttpResponse:
    table = load(env().data)
    context: dict[str, Any] = {"table": table}
    if table is not None:
        context |= {"lines": lines_of(table), "figures": _figures(table)}
    return show(request, "rollouts/redteam.html", context)


def lines_of(table: RedTeam) -> list[Line]:
    """Rows by exploit, in catalogue order."""
    rows = {(row.id, row.backend): row for row in table.rows}
    made = []
    for exploit in table.ids:
        cells = [rows.get((exploit, backend)) for backend in table.backends]
        first = next(row for row in cells if row)
        made.append(Line(exploit, first.title, first.defence, cells))
    return made


def _figures(table: RedTeam) -> list[Figure]:
    count = len(table.rows)
    found = sum(bool(set(row.wanted) & set(row.exploit.rules)) for row in table.rows)
    return [
        Figure("Exploits that score", ui.num(table.scored), note=f"of {count} played; has to be 0"),
        Figure("Honest runs that pass", ui.num(table.honest_passed), note=f"of {count}"),
        Figure("Found as expected", ui.num(found), note=f"of {count}"),
        Figure("Catalogue", ui.num(len(table.ids)), note="exploits, each with its honest run"),
        Figure("Faults", ui.num(len(table.bad)), note="rows; has to be 0"),
    ]
