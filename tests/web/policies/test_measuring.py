"""Candidates for a base model: measured on a real repository, kept, and read on the page, and by API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.policies.measurement import measuring
from composer_web.policies.measurement.measuring import measured
from composer_web.policies.models import Measurement, Policy
from composer_web.policies.services import import_base
from tests.trainer.model_selection.test_codebase import NEW, OLD, candidates, commit, repository
from tests.trainer.stages.memory import BASE_POLICY

from trainer.model_selection.codebase import MAX_BYTES

__all__ = ["candidates", "repository"]
pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def measure(*references: str, path: Path, commits: int | None = None, since: str = "") -> list[Measurement]:
    return measuring.measure(
        references=references, path=path, commits=commits, since=since, window=64, most_bytes=MAX_BYTES, items=1, changes=1,
        device="cpu",
    )  # fmt: skip


@pytest.fixture
def two(candidates: tuple[Path, Path]) -> tuple[Policy, Policy]:
    fresh, trained = (
        import_base(path=path, name=name) for path, name in zip(candidates, ("fresh", "trained"), strict=True)
    )
    return fresh, trained


def test_a_measurement_is_kept_compared_and_shown(
    two: tuple[Policy, Policy], repository: Path, people: dict[str, User], bearer: Callable[..., dict[str, str]]
) -> None:
    made = measure("fresh", "trained@0", path=repository, commits=1)
    assert [(row.policy.name, row.version, row.codebase) for row in made] == [("fresh", 0, "shop"), ("trained", 0, "shop")]
    measure("trained", path=repository, commits=1)
    assert Measurement.objects.count() == 2, "measured again is measured anew"
    (group,) = measured(two[0])
    assert [row.name for row in group] == ["fresh@0", "trained@0"]
    apart = group[1].apart
    assert apart is not None and apart.bits_per_byte.value < 0
    assert apart.recent_bits_per_byte is not None and apart.recent_bits_per_byte.high < 0
    answer = Client().get("/api/v1/policies/trained/measurements", headers=bearer("viewer"))
    rows = answer.json()
    assert [row["policy"] for row in rows] == ["trained@0", "fresh@0"]
    assert rows[0]["apart"] is None and rows[1]["apart"]["value"] == pytest.approx(-apart.bits_per_byte.value)
    assert rows[0]["window"] == 64 and "files" not in rows[0]
    viewer = Client()
    viewer.force_login(people["viewer"])
    page = viewer.get("/policies/fresh/").content.decode()
    assert "On codebases" in page and "trained@0" in page and f"{apart.bits_per_byte.value:.3f}" in page


def test_another_text_is_another_table(two: tuple[Policy, Policy], repository: Path) -> None:
    measure("fresh", path=repository, commits=1)
    commit(repository, 25, more=NEW, total=OLD)
    measure("trained", path=repository, commits=1)
    assert [[row.name for row in group] for group in measured(two[0])] == [["fresh@0"]]
    measure("fresh", path=repository, commits=1)
    assert [[row.name for row in group] for group in measured(two[0])] == [["fresh@0", "trained@0"], ["fresh@0"]]
    assert measured(import_base(path=BASE_POLICY, name="base")) == []


def test_what_cannot_be_measured_is_said(two: tuple[Policy, Policy], repository: Path, tmp_path: Path) -> None:
    for reference, path, since, words in (
        ("none", repository, "", "there is no policy 'none'"),
        ("fresh@7", repository, "", "no weights on disk"),
        ("fresh", tmp_path / "nowhere", "", "nowhere is no folder, git repository"),
        ("fresh", repository, "2027-01-01", "no commit since 2027-01-01"),
        ("fresh", repository, "soon", "write a date like"),
    ):
        with pytest.raises(UserError, match=words):
            measure(reference, path=path, since=since)
    assert not Measurement.objects.exists()
