"""Files of a run on its System tab, over the API and on the command line: what there is, what would go, and its deletion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.models import Run
from tests.web.cli.support import Cli, data
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
Step = Callable[..., Path]
Work = Callable[[], list[FileDeletion]]


@pytest.fixture
def pages(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["operator"])
    return client


def test_the_tab_says_what_files_take_and_deletes_them(ended: Run, step: Step, pages: Client, work: Work) -> None:
    step(ended, 1), step(ended, 2)
    tab = as_read(pages.get(f"/runs/{ended.pk}/system/").content)
    assert f'hx-get="/runs/{ended.pk}/files/"' in tab
    card = as_read(pages.get(f"/runs/{ended.pk}/files/").content)
    assert all(
        name in card for name in ("Checkpoints", "Weight versions", "Trajectories", "1 the newest", "data-confirm")
    )
    more = as_read(pages.get(f"/runs/{ended.pk}/files/?final=on&kinds=checkpoints").content)
    assert "1 the newest" not in more and 'value="checkpoints" checked' in more
    asked = {"kinds": ["checkpoints", "trajectories"], "final": "on"}
    answer = pages.post(f"/runs/{ended.pk}/files/delete/", asked, follow=True)
    assert answer.redirect_chain == [(f"/runs/{ended.pk}/system/", 302)]
    assert "A worker deletes the files" in answer.content.decode()
    assert [(one.kind, one.final, one.by) for one in FileDeletion.objects.order_by("pk")] == [
        ("checkpoints", True, "operator"), ("trajectories", False, "operator"),
    ]  # fmt: skip
    assert "Deleting checkpoints: 0 so far" in as_read(pages.get(f"/runs/{ended.pk}/files/").content)
    work()
    card = as_read(pages.get(f"/runs/{ended.pk}/files/").content)
    assert "Deleted 2 checkpoints" in card and "Deleted 8 trajectories" in card and "by operator" in card
    assert AuditEntry.objects.filter(action="run.delete_files").count() == 1


def test_a_refusal_stands_in_the_card_and_after_the_form(running: Run, pages: Client) -> None:
    assert "is running; stop it, or wait" in as_read(pages.get(f"/runs/{running.pk}/files/").content)
    answer = pages.post(f"/runs/{running.pk}/files/delete/", {"kinds": ["trajectories"]}, follow=True)
    assert "is running; stop it, or wait" in answer.content.decode() and not FileDeletion.objects.exists()
    answer = pages.post(f"/runs/{running.pk}/files/delete/", {}, follow=True)
    assert "name what to delete" in answer.content.decode()


def test_viewers_see_it_and_delete_nothing(ended: Run, people: dict[str, User], bearer: Bearer) -> None:
    client = Client()
    client.force_login(people["viewer"])
    card = as_read(client.get(f"/runs/{ended.pk}/files/").content)
    assert "Trajectories" in card and "Delete chosen files" not in card
    assert client.post(f"/runs/{ended.pk}/files/delete/", {"kinds": ["trajectories"]}).status_code == 403
    address = f"/api/v1/runs/{ended.pk}/files?kinds=trajectories"
    assert Client().delete(address, headers=bearer("viewer", "read")).status_code == 403
    assert not FileDeletion.objects.exists()


def test_over_the_api(ended: Run, step: Step, bearer: Bearer, work: Work) -> None:
    step(ended, 1), step(ended, 2)
    headers, address = bearer("operator", "operate"), f"/api/v1/runs/{ended.pk}/files"

    def read(query: str = "") -> Any:
        return Client().get(f"{address}{query}", headers=headers).json()

    found = {one["kind"]: one for one in read()["files"]}
    assert (found["checkpoints"]["items"], found["checkpoints"]["deleted"]) == (2, 1)
    assert found["checkpoints"]["kept"] == {"the newest": 1} and found["trajectories"]["freed"] > 0
    assert read("?final=true")["files"][0]["deleted"] == 2
    refused = Client().delete(f"{address}?kinds=logs", headers=headers)
    assert refused.status_code == 422 and refused.json()["error"]["field"].startswith("kinds")
    assert Client().delete(address, headers=headers).status_code == 422
    answer = Client().delete(f"{address}?kinds=checkpoints&kinds=trajectories", headers=headers)
    assert answer.status_code == 202
    assert [(one["kind"], one["state"], one["by"]) for one in answer.json()] == [
        ("checkpoints", "waiting", "operator"), ("trajectories", "waiting", "operator"),
    ]  # fmt: skip
    again = Client().delete(f"{address}?kinds=checkpoints", headers=headers)
    assert again.status_code == 409 and "are being deleted already" in again.json()["error"]["message"]
    work()
    assert {one["kind"]: (one["state"], one["items"]) for one in read()["deletions"]} == {
        "checkpoints": ("done", 1), "trajectories": ("done", 8),
    }  # fmt: skip


def test_on_the_command_line(ended: Run, step: Step, cli: Cli, work: Work) -> None:
    step(ended, 1), step(ended, 2)
    pk = str(ended.pk)
    assert {one["kind"] for one in data(cli("files", "get", pk, "--json"))["files"]} == {
        "checkpoints", "versions", "trajectories",
    }  # fmt: skip
    assert "freed" in cli("files", "get", pk)[1]
    (would,) = data(cli("files", "delete", pk, "checkpoints", "--final", "--dry-run", "--json"))
    assert (would["items"], would["deleted"]) == (2, 2) and not FileDeletion.objects.exists()
    made = data(cli("files", "delete", pk, "checkpoints", "trajectories", "--json"))
    assert [one["state"] for one in made] == ["waiting", "waiting"]
    work()
    assert "done" in cli("files", "get", pk)[1]
    assert cli("files", "delete", str(ended.pk + 1000), "versions")[0] == 1
