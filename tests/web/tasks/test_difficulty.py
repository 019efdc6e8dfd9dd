"""A pre-pass from the page, by API and by command; what it found, and what generators may be asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import NotFound, UserError
from composer_web.evals.models import Evaluation
from composer_web.evals.results import prepass
from composer_web.policies.models import Policy
from composer_web.repositories.models import Environment, Repository
from composer_web.tasks import difficulty, generating
from composer_web.tasks.models import Suite
from tests.web.tasks.test_task_supply import measure

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def suite(make_suite: Callable[..., Suite]) -> Suite:
    return make_suite(count=3)


def test_a_prepass_is_started_from_the_page(
    client: Client, people: dict[str, User], suite: Suite, policy: Policy
) -> None:
    client.force_login(people["operator"])
    assert "Never measured" in client.get("/suites/train/difficulty/").content.decode()
    text = client.post(
        "/suites/train/prepass/", {"policy": policy.name, "samples": "2"}, follow=True
    ).content.decode()  # fmt: skip
    assert "on its way" in text
    made = Evaluation.objects.get()
    assert (made.tasks, made.samples, made.temperature, made.suite) == (3, 2, prepass.TEMPERATURE, suite)
    for bad, said in (
        ({"samples": "0"}, "1 to 64"),
        ({"policy": "nobody"}, "nobody"),
        ({"tasks": "x"}, "whole numbers"),
    ):
        form = {"policy": policy.name, **bad}
        assert said in client.post("/suites/train/prepass/", form, follow=True).content.decode()
    assert Evaluation.objects.count() == 1
    client.force_login(people["viewer"])
    assert client.post("/suites/train/prepass/", {"policy": "base"}).status_code == 403
    assert "Start a pre-pass" not in client.get("/suites/train/difficulty/").content.decode()


def test_a_prepass_is_started_by_api(
    client: Client, suite: Suite, policy: Policy, bearer: Bearer
) -> None:  # fmt: skip
    body = {"policy": policy.name, "samples": 2, "tasks": 2}
    answer = client.post(
        "/api/v1/suites/train/prepass", body, content_type="application/json", headers=bearer("operator", "operate")
    )
    assert answer.status_code == 202 and Evaluation.objects.get(pk=answer.json()["evaluation"]).tasks == 2
    body["policy"] = "nobody"
    nobody = client.post(
        "/api/v1/suites/train/prepass", body, content_type="application/json", headers=bearer("operator", "operate")
    )
    assert nobody.status_code == 422 and "nobody" in nobody.json()["error"]["message"]


def test_the_page_shows_what_was_always_and_never_solved(
    client: Client, people: dict[str, User], suite: Suite, policy: Policy, django_assert_max_num_queries
) -> None:
    rates = {0: [True, True], 1: [False, False], 2: [True, False]}
    prepass.record_statistics(evaluation_id=measure(suite, policy, rates).pk)
    found = difficulty.tasks_of(suite, policy=policy.name)
    assert [one.pass_rate for one in found] == [0.0, 0.5, 1.0]
    client.force_login(people["viewer"])
    with django_assert_max_num_queries(8):
        text = client.get("/suites/train/difficulty/").content.decode()
    assert "never solved" in text and "solved every time" in text and "1 of 2" in text
    assert client.get("/suites/none/difficulty/").status_code == 404


def test_generators_take_installed_repositories_and_mine_git_only() -> None:
    one = Repository.objects.create(name="mine", kind="git", location="https://example.org/mine", pin="a" * 40)
    Environment.objects.create(
        name="mine", repository=one, source="git", digest="d" * 64, state="ready", detail={"language": "python"}
    )
    Environment.objects.create(name="other", source="toolz==1", digest="e" * 64, state="ready", detail={})
    assert "mine" in generating.sources() and "other" not in generating.sources()
    wanted = {"name": "made", "packages": ["mine"], "generators": ["mining", "rename", "tests"]}
    generating.request_suite(generating.Wanted(**wanted))
    with pytest.raises(UserError, match="which toolz was not made from"):
        generating.request_suite(generating.Wanted(**{**wanted, "packages": ["toolz"]}))
    with pytest.raises(NotFound, match="nobody"):
        generating.request_suite(generating.Wanted(**{**wanted, "rewriter": "nobody"}))
