"""The command line says what it did and what is wrong."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.accounts.projects import create_project
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.selectors import trajectory
from composer_web.runs.models import Run
from scripts.stack.layout import REPOSITORY
from tests.web.making import claim, finish
from trainer.weights import WeightStore

pytestmark = pytest.mark.django_db


def run(*arguments: Any, **options: Any) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["createtoken", "nobody"], "there is no user"),
        (["importpolicy", "/nowhere"], "not a Hugging Face model folder"),
        (["build_suites", "--train", "0", "--packages", "leftpad"], "not pinned"),
    ],
)
def test_what_is_wrong_is_said(draft: Run, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run(*arguments)


def test_an_unreadable_policy_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(CommandError, match=r"no \*\.safetensors"):
        run("importpolicy", str(folder))
    (folder / "model.safetensors").write_bytes(b"garbage" * 100)
    with pytest.raises(CommandError, match="cannot be read"):
        run("importpolicy", str(folder))


def test_people_and_tokens() -> None:
    assert "with password" in run("seed")
    assert "there already" in run("seed")
    assert User.objects.get(username="admin").role == "admin"
    secret = run("createtoken", "admin", "--scope", "operate").strip()
    assert secret.startswith("oc_")
    with pytest.raises(CommandError, match="too short"):
        run("seed", "--username", "x", "--password", "short")


def test_health_names_what_does_not_answer(settings: Any) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="not everything answers"):
        call_command("health", stdout=out)
    assert "ok   database" in out.getvalue()
    assert "FAIL workers    no living clock, control, io, rollout, train:" in out.getvalue()


def test_the_same_suites_are_built_again_without_a_change(draft: Run) -> None:
    first = run("build_suites", "--train", "5", "--held-out", "3", "--seed", "1")
    assert first == run("build_suites", "--train", "5", "--held-out", "3", "--seed", "1")
    assert "train: 5 tasks (train)\nheld-out: 3 tasks (held-out)" in first


def test_a_policy_is_published_to_a_store_that_engines_follow(db: None, tmp_path: Path) -> None:
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    where = str(tmp_path / "store")
    assert f"base@0 is version 0 of {where}" in run("publishweights", "base@0", where)
    assert f"base@0 is version 1 of {where}" in run("publishweights", "base", where)
    assert WeightStore(where).latest() == 1
    with pytest.raises(CommandError, match="give 2 or more"):
        run("publishweights", "base", where, version_number=1)
    with pytest.raises(CommandError, match="there is no policy 'none'"):
        run("publishweights", "none", where)


def test_what_a_command_makes_goes_where_it_says(draft: Run, policy: Policy, tmp_path: Path) -> None:
    other = create_project(slug="other", name="Other", actor=None)
    for file_name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(REPOSITORY / "policies" / "base" / file_name, tmp_path / "policy")
    run("importpolicy", str(tmp_path / "policy"), name="own", project="other")
    assert Policy.objects.get(name="own").project_id == other.pk
    run("importpolicy", str(tmp_path / "policy"), name="ours")
    assert Policy.objects.get(name="ours").project_id == DEFAULT_PROJECT
    with pytest.raises(CommandError, match="there are default, other"):
        run("importpolicy", str(tmp_path / "policy"), name="x", project="none")


def test_the_tokens_of_a_run_s_rollouts(running: Run, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no finished rollout yet"):
        call_command("tokens", running.pk)
    rollouts.pump(run_id=running.pk)
    claimed = claim(Group.objects.filter(run=running, state="dispatched").earliest("pk"))
    finish(claimed.group, claimed.held, [True, False])
    call_command("tokens", running.pk, out=tmp_path / "work.jsonl", rollouts=1)
    [line] = (tmp_path / "work.jsonl").read_text().splitlines()
    newest = Rollout.objects.filter(group=claimed.group).latest("pk")
    [segment] = trajectory(newest).segments
    assert json.loads(line) == {"rollout": newest.pk, "tokens": segment.tokens, "loss_mask": segment.loss_mask}
