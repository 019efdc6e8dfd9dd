"""The form of a run: what it starts from, what it checks, and errors at their fields."""

from __future__ import annotations

import re

import pytest

from composer_web.accounts.models import User
from composer_web.runs.launch import basic
from composer_web.runs.launch.forms import SCHEMA, default_values
from composer_web.runs.models import Run
from composer_web.runs.services import cancel_run, create_run, parse_config
from tests.browser import seed
from tests.web import seeded
from tests.web.helpers import as_read
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
VALID = {"name": "first", "policy": "base", "stage": {"kind": "sft", "steps": 2}}
world = seeded.world


def test_form_starts_from_a_run_a_checkpoint_or_a_preset(world: seed.World) -> None:
    operator = client(world)
    html = operator.get(f"/runs/new/?from={world.run.pk}").content.decode()
    assert "No changes from" in html
    assert f'name="parent" value="{world.run.pk}"' in html
    html = as_read(operator.get(f"/runs/new/?from={world.run.pk}&policy=base@0").content)
    assert 'value="base@0" selected' in html
    assert '<a href="#f-policy">Policy</a></dt><dd> base → base@0' in html
    assert operator.get("/runs/new/?from=999999").status_code == 404


def test_check_tells_changes_and_what_was_measured(world: seed.World) -> None:
    values = {**default_values(), "name": "changed", "preset": "rl-smoke", "stage": "rl"}
    values |= {"stage.rl.steps": "4", "stage.rl.groups_per_step": "2", "stage.rl.group_size": "4"}
    values |= {"stage.rl.max_in_flight_groups": "4", "stage.rl.optimizer.warmup_steps": "1"}
    body = client(world).post("/runs/new/check/", values).json()
    assert body["changes"]["stage.rl.steps"] == "3"
    assert "stage.rl.group_size" not in body["changes"]
    assert "<dt>Duration</dt>" in body["plan"] and " change" in body["bar"]
    assert world.run.name in body["plan"]
    values = {**default_values(), "name": "new kind", "preset": "sft-toy", "stage": "sft"}
    assert "Duration unavailable" in client(world).post("/runs/new/check/", values).json()["plan"]


def test_a_preset_starts_as_it_is(world: seed.World) -> None:
    operator = client(world)
    answer = operator.post("/runs/new/", {"action": "preset", "preset": "rl-smoke"})
    run = Run.objects.latest("pk")
    assert (answer["Location"], run.state, run.steps_total) == (f"/runs/{run.pk}/", "queued", 3)
    refused = operator.post("/runs/new/", {"action": "preset", "preset": "real-moe"})
    assert refused.status_code == 422 and Run.objects.latest("pk") == run
    assert "Run not started" in refused.content.decode()


def test_form_creates_a_run(world: seed.World) -> None:
    operator = client(world)

    values = {
        **default_values(),
        "name": "From the form",
        "stage": "rl",
        "stage.rl.steps": "2",
        "stage.rl.groups_per_step": "2",
        "stage.rl.max_in_flight_groups": "4",
        "action": "start",
    }
    answer = operator.post("/runs/new/", values)
    run = Run.objects.get(name="From the form")
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert (run.state, run.kind, run.steps_total) == ("queued", "rl", 2)
    assert run.created_by == User.objects.get(username="operator")


def test_a_draft_is_kept_listed_opened_again_and_started(world: seed.World) -> None:
    operator, started = client(world), Run.objects.exclude(state="draft").count()
    values = {
        **default_values(),
        "name": "Not yet",
        "stage": "rl",
        "stage.rl.steps": "7",
        "stage.rl.groups_per_step": "2",
        "stage.rl.max_in_flight_groups": "4",
        "seed": "41",
        "action": "draft",
    }
    answer = operator.post("/runs/new/", values, follow=True)
    run = Run.objects.get(name="Not yet")
    assert answer.redirect_chain[-1][0] == f"/runs/{run.pk}/" and "“Not yet” is a draft." in answer.content.decode()
    assert run.state == "draft" and Run.objects.exclude(state="draft").count() == started, "nothing starts"
    listed = as_read(operator.get("/runs/?state=draft").content).partition("<main")[2]
    assert f'href="/runs/{run.pk}/">Not yet</a>' in listed and ">RL on small repositories</a>" not in listed
    page = as_read(operator.get(f"/runs/{run.pk}/").content)
    assert f'action="/runs/{run.pk}/start/"' in page or f'formaction="/runs/{run.pk}/start/"' in page
    again = as_read(operator.get(f"/runs/new/?from={run.pk}").content)
    for name, value in (("stage.rl.steps", "7"), ("stage.rl.groups_per_step", "2"), ("seed", "41")):
        (field,) = re.findall(rf'<input[^>]*name="{re.escape(name)}"[^>]*>', again)
        assert f'value="{value}"' in field, field
    assert "No changes from" in again, "it differs in nothing from the draft"
    operator.post(f"/runs/{run.pk}/start/")
    run.refresh_from_db()
    assert (run.state, run.steps_total, run.configuration.seed) == ("queued", 7, 41)


def test_a_run_can_start_after_another_one(world: seed.World) -> None:
    operator = client(world)
    first = create_run(config=parse_config({**VALID, "name": "the first"}))
    html = as_read(operator.get(f"/runs/new/?after={first.pk}").content)
    assert f'<option value="{first.pk}" selected>the first (draft)</option>' in html
    assert f'?after={first.pk}"' in operator.get(f"/runs/{first.pk}/").content.decode()
    values = {**default_values(), "name": "the second", "preset": "sft-toy", "stage": "sft", "after": str(first.pk)}
    assert f"start_after={first.pk}" in operator.post("/runs/new/", {**values, "action": "curl"}).content.decode()
    assert (
        f"--start-after {first.pk}"
        in operator.post("/runs/new/", {**values, "action": "opencomposer"}).content.decode()
    )
    refused = operator.post("/runs/new/", {**values, "action": "sweep", "sweep": "seed: 1, 2"})
    assert refused.status_code == 422 and "The runs of a sweep start at once" in refused.content.decode()
    answer = operator.post("/runs/new/", {**values, "action": "start"})
    run = Run.objects.latest("pk")
    assert (answer["Location"], run.state, run.start_after) == (f"/runs/{run.pk}/", "queued", first)
    assert run.policy_in.name == f"run-{first.pk}"
    cancel_run(run=first)
    late = operator.post("/runs/new/", {**values, "name": "late", "action": "start"})
    assert late.status_code == 422 and "was cancelled" in late.content.decode()
    assert operator.post("/runs/new/", {**values, "after": "999999"}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"stage.rl.steps": "many"}, "stage.rl.steps", "A whole number is needed; found &#x27;many&#x27;."),
        ({"stage.rl.sampling.temperature": "3"}, "stage.rl.sampling.temperature", "Must be &gt; 0, ≤ 2; found"),
        ({"name": ""}, "name", "Required; give a value."),
        ({"stage.rl.max_in_flight_groups": "99"}, "stage.rl.max_in_flight_groups", "needs max_off_policy_steps"),
        ({"stage.rl.steps": "4000"}, "stage.rl.suite", "has 64"),
        ({"policy": "nobody"}, "policy", "there is no policy"),
        ({"stage": "bogus"}, "stage", "does not match any of the expected tags"),
    ],
)
def test_form_shows_errors_at_the_field(world: seed.World, changes: dict[str, str], field: str, message: str) -> None:

    values = {**default_values(), "name": "wrong", "stage": "rl", "stage.rl.steps": "2", **changes}
    answer = client(world).post("/runs/new/", values)
    assert answer.status_code == 422
    html = answer.content.decode()
    place = html.index(f'data-field="{field}"')
    assert message in html[place : html.index("field__error", place) + 300]
    assert not Run.objects.filter(name="wrong").exists()
    checked = client(world).post("/runs/new/check/", values).json()
    assert checked["errors"][field]


def test_a_rubric_is_typed_in_lines_and_its_errors_stand_at_it(world: seed.World) -> None:
    name = "stage.rl.reward.behaviour.rubric_text"
    assert f'<textarea id="f-{name}"' in client(world).get("/runs/new/").content.decode()
    values = {**default_values(), "name": "graded", "stage": "rl", name: "tests 2: Good tests?\r\nkind"}
    (message,) = client(world).post("/runs/new/check/", values).json()["errors"][name]
    assert "line 2: 'kind' is not" in message
    assert (
        name not in client(world).post("/runs/new/check/", values | {name: "tests 2: Good tests?\r\n"}).json()["errors"]
    )


def test_check_says_what_will_run(world: seed.World) -> None:

    values = {
        **default_values(),
        "name": "plan",
        "stage": "rl",
        "stage.rl.steps": "3",
        "stage.rl.groups_per_step": "4",
        "stage.rl.max_in_flight_groups": "8",
    }
    body = client(world).post("/runs/new/check/", values).json()
    assert body["errors"] == {}
    assert "12 prompts × 8" in body["plan"]
    assert "toy" in body["plan"]
    assert client(world, "viewer").post("/runs/new/check/", values).status_code == 403


def test_basic_has_at_most_fifteen_settings_that_exist() -> None:
    for kind, names in basic.STAGES.items():
        whole = [*basic.COMMON, *(f"stage.{kind}.{name}" for name in names)]
        assert len(whole) <= basic.MAX, kind
        assert set(whole) <= SCHEMA.by_name.keys(), kind


def test_another_preset_keeps_the_policy_that_one_came_with(world: seed.World) -> None:
    html = client(world).get("/runs/new/?policy=base@0").content.decode()
    assert 'href="?preset=sft&amp;policy=base%400"' in html
    assert 'href="?preset=sft"' in client(world).get("/runs/new/").content.decode()


def test_the_form_starts_from_the_policy_that_the_address_names(world: seed.World) -> None:
    """The only version of a policy was no option, and the newest policy took its place without a word."""
    html = client(world).get("/runs/new/?policy=base@0").content.decode()
    assert re.search(r'<option value="base@0" selected', html)
    html = client(world).get("/runs/new/?policy=nobody@7").content.decode()
    assert re.search(r'<option value="nobody@7" selected', html) and "1 error to fix" in html


def test_the_form_opens_where_the_error_is(world: seed.World) -> None:
    operator = client(world)
    assert re.search(r'id="view-basic"\s+checked', operator.get("/runs/new/?preset=rl-smoke").content.decode())
    values = {**default_values(), "name": "wrong", "stage": "rl", "stage.rl.steps": "2"}
    html = operator.post("/runs/new/", values | {"stage.rl.objective.kl_coefficient": "much"}).content.decode()
    assert re.search(r'id="view-advanced"\s+checked', html) and "Run not started" in html
    html = operator.post("/runs/new/", values | {"stage.rl.steps": "many"}).content.decode()
    assert re.search(r'id="view-basic"\s+checked', html) and "1 error to fix" in html
