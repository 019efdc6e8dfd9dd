"""The lint of words: wordings that pages showed and that the field's own replaced are found, and no file has one."""

from __future__ import annotations

import pytest

from scripts import words

PAGE = "templates/runs/page.html"
OLD = [
    ("What will run", "Run summary"), ("Made by run", "Created by run"), ("1 field to mend", "error to fix"),
    ("Everything as in the preset", "No changes"), ("A rank holds", "Trainer memory per GPU"),
    ("No money", "Cost unavailable"), ("Harder later", "Curriculum strength"), ("Drop solved none", "Exclude never solved"),
    ("Ends without finishing", "Truncated rollouts"), ("Groups without signal", "Zero-advantage groups"),
    ("broken call", "Malformed tool call"), ("lost to infrastructure", "infra errors"), ("nat a token", "nats/token"),
    ("Where the time goes", "Time breakdown"), ("Not accounted for", "Other"), ("Of it apply", "Apply"),
    ("As dispatched", "Dispatch order"), ("A row a prompt, a cell a rollout", "Rows: prompts; cells: rollouts"),
    ("Their ways part in", "Diverges at"), ("Tick two", "Select two"), ("Go on after turn", "Fork from turn"),
    ("Policy text", "Model output"), ("Whole range", "Reset zoom"), ("Keys (?)", "Keyboard shortcuts (?)"),
    ("May be wrong", "Known false positives"), ("Reviewers of each", "Reviewers per rollout"),
    ("the newest 200 join", "Newest N added"), ("8 recorded rollouts join", "Newest N added"), ("This is needed", "Required"),
    ("Make the queue", "Create queue"), ("Set their tasks aside", "Exclude tasks"), ("Wait for you", "Awaiting you"),
    ("Open a suite to curate into", "New suite"), ("Review into it", "Add via review"), ('label="Controls"', "Validation"),
    ("Tags, sides, suites", "Tags, splits"), ("Tasks of each generator", "Tasks per generator"),
    ("Also tasks that two reviewers have not admitted", "Include unreviewed"), ("nobody beats it", "Pareto-optimal"),
    ("Beside other suites", "Benchmark comparison"), ("leaves zero out", "Significant"), ("By chance", "p-value"),
    ("A change of one task is clear", "Significant"), ("the other way round", "Swap"), ("Before, during, after", "Baseline"),
    ("KV cache a token", "KV cache per token"), ("stood still, in all", "total"), ("Keep clear of", "Decontaminate"),
    ("Kept clear of", "Decontaminated"), ("went silent", "Offline"), ("Quiet minutes", "Cooldown"), (">Keep these<", "Save"),
    ("Served now", "In production"), ("Nothing to tell", "No notifications"), ("$ per million", "Input/Output $ per 1M"),
    ("Requests of one token a minute", "Requests/min per API token"), ("Most tokens of an answer", "Max output tokens"),
]  # fmt: skip
"""Wording → part of what the lint says to use."""


@pytest.mark.parametrize(("old", "new"), OLD, ids=[old for old, _ in OLD])
def test_a_retired_wording_is_found_on_a_page(old: str, new: str) -> None:
    (found, *_) = words.in_text(PAGE, f"<p>\n{old}</p>")
    assert found.startswith(f"{PAGE}:2: ") and new in found


def test_every_wording_of_the_table_is_tried() -> None:
    page = "\n".join(old for old, _ in OLD)
    assert [pattern.pattern for pattern, _, _ in words.WORDINGS if not pattern.search(page)] == []


def test_wordings_are_searched_only_where_pages_take_their_text_from() -> None:
    assert words.in_text("trainer/rl/evaluate.py", '"""Samples lost to infrastructure."""') == []
    assert words.in_text("trainer/config/episodes.py", '"lost to infrastructure"')
    assert words.in_text("templates/a.html", "an attempt and its parallel recorded rollouts") == []


def test_no_page_uses_a_retired_word() -> None:
    assert words.problems(words.SHOWN) == []
