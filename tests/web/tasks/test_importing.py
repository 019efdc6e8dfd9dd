"""Tasks and trajectories of other projects come in by page, API and command: whole, or not at all and with the reason."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.repositories import services as repositories
from composer_web.repositories.models import Environment
from composer_web.tasks.exchange import importing, interchange
from composer_web.tasks.models import ImportedTrajectory, Suite
from composer_web.tasks.overlap import store
from sandbox.formats import atif, messages, swebench
from sandbox.grading.patches.patch import render
from sandbox.tasks.environments import Manifest
from sandbox.tasks.spec import BuiltEnvironment
from tests.sandbox.formats.examples import BROKEN, CALLS, GOLD, RECORD, TESTS

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


def diff(path: str, before: str | None, after: str) -> str:
    from sandbox.backends.base import FileChange, Patch

    change = FileChange(path, after.encode(), before=None if before is None else before.encode())
    return render(Patch(changes=(change,)))


@pytest.fixture
def checkout() -> Environment:
    """A ready environment whose checkout is the broken one."""
    tree = store().working_directory()
    (tree / "repo").mkdir()
    (tree / "repo" / "add.py").write_text(BROKEN)
    built = store().add_built(tree, Manifest(name="add", version="1"))
    return repositories.register_ready(name="add", source="local", digest=built.digest, detail={})


def row(**changes: object) -> dict[str, object]:
    made = {
        "repo": "local/add", "instance_id": "local__add-1", "base_commit": "abc", "problem_statement": "Adding is wrong.",
        "patch": diff("add.py", BROKEN, GOLD), "test_patch": diff("tests/test_add.py", None, TESTS),
        "FAIL_TO_PASS": json.dumps(["tests/test_add.py::test_add[a b]"]),
        "PASS_TO_PASS": json.dumps(["tests/test_add.py::test_zero"]),
    }  # fmt: skip
    return {**made, **changes}


def lines(*rows: dict[str, object]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in rows).encode()


def test_rows_come_in_over_an_environment(client: Client, people: dict[str, User], checkout: Environment) -> None:
    client.force_login(people["reviewer"])
    assert "add" in client.get("/imports/").content.decode()
    form = {"name": "rows", "format": "swe-bench", "environment": "add", "purpose": "benchmark"}
    upload = SimpleUploadedFile("rows.jsonl", lines(row(hints_text="a hint")))
    text = client.post("/imports/tasks/", {**form, "file": upload}, follow=True).content.decode()
    assert "1 tasks imported" in text and "hints_text" in text and "base_commit" in text
    spec = Suite.objects.get(name="rows").versions.get().bundle
    assert spec.environment == BuiltEnvironment(digest=checkout.digest or "") and spec.gold == {"add.py": GOLD}
    assert spec.verifier.fail_to_pass == ("tests/test_add.py::test_add[a b]",), "ids with spaces stay whole"


def test_the_relatives_of_swe_bench_keep_their_meaning(checkout: Environment) -> None:
    pro = {
        "fail_to_pass": "['tests/test_add.py::test_add[a b]']", "pass_to_pass": "['tests/test_add.py::test_zero']",
        "selected_test_files_to_run": "['tests/test_add.py']",
    }  # fmt: skip
    plain = row()
    del plain["FAIL_TO_PASS"], plain["PASS_TO_PASS"]
    (spec,), _ = importing.import_rows(lines({**plain, **pro}), environment="add")
    assert spec.verifier.pass_to_pass == ("tests/test_add.py::test_zero",), "lists of Python's, lower-case columns"
    # In SWE-smith's rows the patch is the bug: the checkout of the environment is the oracle.
    smith = row(image_name="x", patch=diff("add.py", BROKEN, GOLD), FAIL_TO_PASS=["add.py::test_x"], PASS_TO_PASS=[])
    del smith["test_patch"]
    (spec,), _ = importing.import_rows(lines(smith), environment="add")
    assert spec.gold == {"add.py": BROKEN} and spec.environment.overrides == {"add.py": GOLD}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "line 1 is not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\n\n", "holds no row"),
        (lines(row(), row()), "is there twice"),
        (lines(row(FAIL_TO_PASS="[1")), "neither a list nor a list as a string"),
        (lines(row(patch=diff("add.py", "other\n", "x\n"))), "patch"),
        (lines(row(patch=diff("../add.py", None, "x\n"))), "add.py"),
        (lines({"repo": "x"}), "has no column instance_id"),
    ],
)
def test_bad_rows_import_nothing(
    client: Client, people: dict[str, User], checkout: Environment, data: bytes, said: str
) -> None:
    client.force_login(people["reviewer"])
    form = {"name": "bad", "format": "swe-bench", "environment": "add", "file": SimpleUploadedFile("x.jsonl", data)}
    text = client.post("/imports/tasks/", form, follow=True).content.decode()
    assert said in text and not Suite.objects.exists()


def test_rows_need_an_environment_and_people_who_may(client: Client, people: dict[str, User]) -> None:
    with pytest.raises(UserError, match="no ready environment 'nothing'"):
        importing.import_rows(lines(row()), environment="nothing")
    client.force_login(people["viewer"])
    assert client.get("/imports/").status_code == 403
    assert client.post("/imports/trajectory/").status_code == 403


@pytest.mark.parametrize("name", ["../evil/task.toml", "/evil/task.toml", "one/../../task.toml", "one/.git/config"])
def test_a_zip_that_leaves_its_folder_imports_nothing(name: str) -> None:
    data, _ = interchange.export_tasks([CALLS], "harbor")
    archive = io.BytesIO(data)
    with zipfile.ZipFile(archive, "a") as out:
        out.writestr(name, "x")
    with pytest.raises(UserError):
        importing.import_suite(archive.getvalue(), name="slip")
    assert not Suite.objects.exists()


@pytest.mark.parametrize("form", ["atif", "messages", "mini-swe-agent"])
def test_trajectories_come_in_and_leave_in_every_format(
    client: Client, people: dict[str, User], bearer: Bearer, form: str
) -> None:
    data, _ = importing.write_trajectory(RECORD, form)  # type: ignore[arg-type]
    client.force_login(people["reviewer"])
    text = client.post(
        "/imports/trajectory/", {"file": SimpleUploadedFile("t.json", data)}, follow=True
    ).content.decode()  # fmt: skip
    assert "The trajectory is kept" in text and "read_file" in text and "Fix é." in text
    listed = client.get("/imports/?sort=-steps").content.decode()
    assert f">{form}<" in listed
    answer = client.post(
        "/api/v1/tasks/trajectories/import", {"file": SimpleUploadedFile("t.json", data)}, headers=bearer("reviewer", "review")
    )  # fmt: skip
    assert answer.status_code == 201
    name = answer.json()["name"]
    assert ImportedTrajectory.objects.get().name == name, "the same content is listed once"
    again = client.get(f"/api/v1/tasks/trajectories/{name}/export/{form}", headers=bearer("viewer"))
    assert again.json()["document"] == json.loads(data), "there and back"
    assert client.get(f"/imports/{name}/?as=atif").status_code == 200
    assert client.get(f"/imports/{name}/?as=other").status_code == 422
    other = client.get(f"/api/v1/tasks/trajectories/{name}/export/atif", headers=bearer("viewer")).json()["document"]
    assert atif.load(json.dumps(other))[0] == importing.kept_trajectory(name)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"nothing", "not JSON"),
        (b"{}", "no trajectory that is known"),
        (b'{"trajectory_format": "mini-swe-agent-9.9", "messages": []}', "newer than mini-swe-agent-1.1"),
        (b'{"schema_version": "ATIF-v3.0"}', "ATIF"),
        (b'[{"role": "oracle", "content": "x"}]', "message 0"),
        (b'[{"role": "assistant", "tool_calls": [{"id": 1}]}]', "message 0"),
    ],
)
def test_bad_trajectories_are_refused_by_their_place(
    client: Client, people: dict[str, User], data: bytes, said: str
) -> None:
    client.force_login(people["reviewer"])
    answer = client.post("/imports/trajectory/", {"file": SimpleUploadedFile("t.json", data)}, follow=True)
    assert answer.redirect_chain[-1][0] == "/imports/" and said in answer.content.decode()
    assert client.get("/imports/nothing/").status_code == 404


def test_formats_are_told_apart() -> None:
    documents = {
        "atif": atif.export(RECORD)[0], "messages": messages.export(RECORD)[0], "mini-swe-agent": messages.export_mini(RECORD)[0],
    }  # fmt: skip
    assert {form: importing.format_of(document) for form, document in documents.items()} == {
        form: form for form in documents
    }
    assert [one.instance_id for one in swebench.load(lines(row()).decode())] == ["local__add-1"]
