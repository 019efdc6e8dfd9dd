"""Mid-training studies by form, API and command line: the chains of runs, the table, the plot, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.runs import metrics
from composer_web.runs import services as runs
from composer_web.runs.models import Run
from composer_web.studies import results, services
from composer_web.studies.levels import LEVELS
from composer_web.studies.models import Study
from composer_web.studies.schemas import StudyIn
from composer_web.tasks.models import Suite
from tests.web.cli.support import Cli, data
from tests.web.making import SMALL
from trainer.toy.preset import toy_midtrain, toy_sft

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def suite(base: Policy, make_suite: Callable[..., Suite]) -> Suite:
    return make_suite()


@pytest.fixture
def ours(tmp_path: Path) -> str:
    """A codebase beside the corpora."""
    folder = env().data / "corpora" / "ours"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.py").write_text("def total(items):\n    return sum(items)\n" * 20)
    return folder.name


def wanted(**changes: Any) -> StudyIn:
    given = {
        "name": "does it pay",
        "policy": "base",
        "seeds": [0],
        "midtrain": toy_midtrain(steps=2),
        "sft": toy_sft(steps=2, episodes=20),
        "rl": SMALL,
    }
    return StudyIn(**(given | changes))


@pytest.fixture
def study(suite: Suite) -> Study:
    return services.create_study(wanted=wanted())


def pages(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def of(study: Study, level: str, kind: str, seed: int = 0) -> Run:
    return Run.objects.get(place_in_study__study=study, place_in_study__level=level, kind=kind, seed=seed)


def end(study: Study, level: str, *, loss: float, rewards: list[float], seed: int = 0) -> None:
    """The chain as its trainers leave it."""
    Run.objects.filter(place_in_study__study=study, place_in_study__level=level, seed=seed).update(state="running")
    sft, rl = of(study, level, "sft", seed), of(study, level, "rl", seed)
    metrics.record_many(run=sft, rows=[(2, "loss/heldout", loss), (2, "loss/codebase", loss + 1)])
    metrics.record_many(run=rl, rows=[(step, "reward/mean", value) for step, value in enumerate(rewards, 1)])
    metrics.record_many(run=rl, rows=[(2, "eval/pass1", 0.25)])
    metrics.record_many(run=of(study, level, "midtrain", seed), rows=[(2, "loss/heldout", loss + 2)])
    Run.objects.filter(place_in_study__study=study, place_in_study__level=level, seed=seed).update(state="finished")


def test_every_level_and_seed_is_a_chain_of_three_runs(suite: Suite, ours: str, people: dict[str, User]) -> None:
    study = services.create_study(wanted=wanted(seeds=[3, 5], codebase=ours), actor=people["operator"])
    assert Run.objects.filter(place_in_study__study=study, state="queued").count() == 18
    for level, factor in LEVELS.items():
        midtrain, sft, rl = (of(study, level, kind, 5) for kind in ("midtrain", "sft", "rl"))
        assert midtrain.steps_total == 2 * factor and midtrain.start_after is None
        assert (sft.start_after, rl.start_after) == (midtrain, sft)
        assert midtrain.config["stage"]["codebase"] == sft.config["stage"]["codebase"] == ours
        assert rl.name == f"does it pay {level} seed 5 RL"
    assert AuditEntry.objects.filter(action="study.create", actor=people["operator"]).exists()


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"policy": "nobody"}, "policy", "there is no policy 'nobody'"),
        ({"codebase": "gone"}, "codebase", "there is no folder 'gone'"),
        ({"midtrain": toy_midtrain(corpus="gone")}, "midtrain.corpus", "there is no prepared corpus 'gone'"),
        ({"sft": toy_sft(dataset="gone")}, "sft.dataset", "gone"),
        ({"rl": SMALL.model_copy(update={"suite": "gone"})}, "rl.suite", "there is no suite 'gone'"),
    ],
)
def test_a_run_that_cannot_work_refuses_the_whole_study(
    suite: Suite, changes: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        services.create_study(wanted=wanted(**changes))
    assert refused.value.field == field
    assert not Study.objects.exists() and not Run.objects.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [1, 1]}, "a seed is listed twice"),
        ({"seeds": []}, "at least 1"),
        ({"name": "<b>"}, "use letters"),
        ({"codebase": "one", "midtrain": toy_midtrain(codebase="other")}, "leave that of the stage empty"),
    ],
)
def test_a_study_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message if "letters" not in message else "pattern"):
        wanted(**changes)


def test_results_tell_apart_points_failures_and_what_still_runs(study: Study) -> None:
    end(study, "S", loss=3.0, rewards=[0.0, 0.2])
    end(study, "M", loss=2.0, rewards=[0.4, 0.6])
    found = results.results(study)
    assert [(chain.level, chain.sft_loss, chain.reward, chain.pass1, chain.heldout_loss) for chain in found.points] == [
        ("S", 3.0, pytest.approx(0.1), 0.25, 5.0),
        ("M", 2.0, pytest.approx(0.5), 0.25, 4.0),
    ]
    assert found.correlation == pytest.approx(1.0) and found.within_seeds is None
    midtrain = of(study, "L", "midtrain")
    assert [chain.missing for chain in found.missing] == [f"mid-training (run {midtrain.pk}) is queued"]
    runs.mark_running(run=midtrain, owner="train@test")
    runs.mark_failed(run=midtrain, cause="out of memory")
    (missing,) = results.results(study).missing
    assert missing.failed and missing.missing == f"mid-training (run {midtrain.pk}) is failed: out of memory"


def test_the_loss_is_that_on_the_codebase_where_the_study_has_one(suite: Suite, ours: str) -> None:
    study = services.create_study(wanted=wanted(codebase=ours, seeds=[0, 1]))
    for seed in (0, 1):
        for level, reward in (("S", 0.5), ("M", 0.3), ("L", 0.1)):
            end(study, level, loss=1.0 / LEVELS[level], rewards=[reward, reward], seed=seed)
    found = results.results(study)
    assert found.points[0].sft_loss == 2.0 and found.measured == "loss/codebase"
    assert found.correlation == pytest.approx(-1.0) and found.within_seeds == pytest.approx(-1.0)


def test_the_page_shows_the_table_the_plot_and_what_is_missing(study: Study, people: dict[str, User]) -> None:
    viewer = pages(people["viewer"])
    page = viewer.get(f"/runs/studies/{study.pk}/").content.decode()
    assert "0 of 3 points" in page and "no chain has ended" in page and "data-pareto" not in page
    assert "does it pay" in viewer.get("/runs/studies/").content.decode()
    end(study, "S", loss=3.0, rewards=[0.0, 0.2])
    runs.cancel_run(run=of(study, "M", "midtrain"))
    page = viewer.get(f"/runs/studies/{study.pk}/").content.decode()
    assert 'data-pareto="plain"' in page and "S, seed 0" in page and "1 of 3" in page
    assert f"mid-training (run {of(study, 'M', 'midtrain').pk}) is cancelled" in page
    assert f'href="/runs/{of(study, "S", "rl").pk}/"' in page and "Stop" not in page
    part = viewer.get(f"/runs/studies/{study.pk}/", headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div class="stack" id="study-results"')


def test_the_form_creates_a_study_and_shows_what_is_wrong_at_its_field(
    suite: Suite, ours: str, people: dict[str, User]
) -> None:
    operator = pages(people["operator"])
    form = operator.get("/runs/studies/new/?policy=base").content.decode()
    assert '<option value="midtrain-toy" selected>' in form and f'<option value="{ours}">' in form
    body = {
        **{"name": "by hand", "policy": "base", "codebase": ours, "seeds": " 2 ", "midtrain": "midtrain-toy"},
        **{"midtrain.steps": "4", "sft": "sft-toy", "sft.steps": "3", "rl": "rl-smoke", "rl.eval_suite": "-"},
    }
    refused = operator.post("/runs/studies/new/", {**body, "seeds": "one", "rl.steps": "0"})
    assert refused.status_code == 422 and not Study.objects.exists()
    assert "valid integer" in refused.content.decode() and 'value="by hand"' in refused.content.decode()
    assert pages(people["viewer"]).post("/runs/studies/new/", body).status_code == 403
    operator.post("/runs/studies/new/", body)
    study = Study.objects.get()
    assert (of(study, "L", "midtrain", 2).steps_total, of(study, "S", "sft", 2).steps_total) == (36, 3)
    assert of(study, "S", "rl", 2).config["stage"]["eval_suite"] is None
    assert pages(people["viewer"]).post(f"/runs/studies/{study.pk}/stop/").status_code == 403
    operator.post(f"/runs/studies/{study.pk}/stop/")
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}


def test_by_api(suite: Suite, bearer: Bearer) -> None:
    def send(path: str, body: Any, headers: dict[str, str]) -> Any:
        return Client().post(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=headers)

    body = wanted().model_dump(mode="json")
    assert send("/studies", body, bearer("viewer", "read")).status_code == 403
    headers = bearer("operator", "operate")
    refused = send("/studies", {**body, "policy": "nobody"}, headers)
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "policy")
    made = send("/studies", body, headers)
    assert made.status_code == 201, made.content
    pk = made.json()["id"]
    found = Client().get(f"/api/v1/studies/{pk}", headers=headers).json()
    assert found["wanted"] == body and found["points"] == 0 and found["correlation"] is None
    assert [chain["rl"]["state"] for chain in found["chains"]] == ["queued"] * 3
    stopped = send(f"/studies/{pk}/stop", {}, headers).json()
    assert (stopped["live"], stopped["failed"]) == (0, 9)
    assert Client().get("/api/v1/studies", headers=headers).json()["items"][0]["runs"] == 9


def test_on_the_command_line(suite: Suite, cli: Cli, tmp_path: Path) -> None:
    words = ("--policy", "base", "--midtrain", "midtrain-toy", "--sft", "sft-toy", "--rl", "rl-smoke", "--seeds", "4")
    code, said = cli("studies", "create", "tried", *words, "--set", "rl.eval_suite=null", "--set", "midtrain.steps=2")
    study = Study.objects.get()
    assert (code, said.strip()) == (0, f"study {study.pk}: 9 runs of tried"), said
    assert (
        "rank correlation of minus loss/heldout after SFT and reward: not defined (0 of 3 points)"
        in (cli("studies", "get", str(study.pk))[1])
    )
    whole = data(cli("studies", "get", str(study.pk), "--json"))["wanted"]
    (tmp_path / "study.json").write_text(json.dumps(whole))
    assert cli("studies", "create", "again", "--file", str(tmp_path / "study.json"))[0] == 0
    assert [one["name"] for one in data(cli("studies", "list", "--json"))] == ["again", "tried"]
    assert "0" in cli("studies", "stop", str(study.pk))[1]
    assert cli("studies", "create", "x", "--sft", "sft-toy", "--rl", "rl-smoke")[0] != 0, "mid-training has no preset"
