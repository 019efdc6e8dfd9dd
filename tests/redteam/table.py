"""The table of the red team, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.grading.redteam import RedTeam, Row
from sandbox.grading.verdict.outcomes import Verdict
from tests.redteam.base import Pair

WIDTH = 46


def text(table: RedTeam) -> str:
    """A line an exploit and backend, what is wrong below, and the sums."""
    lines = [f"{'id':<4} {'exploit':<{WIDTH}} {'backend':<11} {'exploit':<12} {'honest':<8} {'unguarded':<10} findings"]
    order = {exploit: index for index, exploit in enumerate(table.ids)}
    for row in sorted(table.rows, key=lambda row: (order[row.id], row.backend)):
        lines.append(_line(row))
        lines += [f"     ! {fault}" for fault in row.faults]
    for backend, why in table.left_out.items():
        lines.append(f"{backend}: left out: {why}")
    caught = sum(bool(set(row.wanted) & set(row.exploit.rules)) for row in table.rows)
    count = len(table.rows)
    lines.append(
        f"{table.scored} of {count} exploits score, {table.honest_passed} of {count} honest runs pass, the expected "
        f"finding is raised for {caught} of {count}; {len(table.ids)} ids on {', '.join(table.backends)}; {table.seconds:.0f} s"
    )
    return "\n".join(lines)


def _line(row: Row) -> str:
    verdict = "PAID" if row.exploit.verdict is Verdict.PASSED else row.exploit.verdict
    unguarded = {None: "", True: "paid", False: "NOT PAID"}[row.unguarded]
    wanted = [rule for rule in row.exploit.rules if rule in row.wanted]
    return (
        f"{row.id:<4} {row.title[:WIDTH]:<{WIDTH}} {row.backend:<11} {verdict:<12} {row.honest.verdict:<8} {unguarded:<10} "
        + ", ".join(wanted)
    )


def markdown(pairs: Sequence[Pair]) -> str:
    """The table of docs/sandbox/red-team.md."""
    rows = ["| id | Exploit | Defence | Findings, at least one of |", "|---|---|---|---|"]
    for pair in pairs:
        rules = ", ".join(f"`{rule}`" for rule in pair.exploit.findings)
        rows.append(f"| {pair.exploit.id} | {pair.exploit.title} | {pair.defence} | {rules} |")
    return "\n".join(rows)
