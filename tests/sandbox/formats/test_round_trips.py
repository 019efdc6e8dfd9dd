"""For any record, row or task: out and back gives the same, or what is missing was named."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.formats import atif, harbor, messages, swebench
from sandbox.formats.base import FormatRefused
from sandbox.formats.record import Call, Opening, Record, Result, Step
from sandbox.repositories.history import TreeFile
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import InlineEnvironment, PytestVerifier, TaskSpec

QUICK = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
# Files on disk and JSON hold any text but lone surrogates; control characters are part of what terminals print.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WORD = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@st.composite
def steps(draw: st.DrawFn, number: int) -> Step:
    calls = tuple(
        Call(id=f"c{number}-{at}", name=draw(WORD), arguments=draw(TEXT)) for at in range(draw(st.integers(0, 2)))
    )
    results = tuple(Result(call_id=call.id, content=draw(TEXT)) for call in calls if draw(st.booleans()))
    tokens = tuple(draw(st.lists(st.integers(0, 200_000), max_size=4)))
    return Step(
        content=draw(TEXT), thinking=draw(TEXT), calls=calls, results=results,
        completion_token_ids=tokens, logprobs=tuple(-float(at) for at, _ in enumerate(tokens)),
        prompt_token_ids=tuple(draw(st.lists(st.integers(0, 200_000), max_size=4))), excluded=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> Record:
    return Record(
        id=draw(WORD), task=draw(WORD), model=draw(WORD),
        opening=tuple(
            Opening(role=draw(st.sampled_from(["system", "user"])), content=draw(TEXT)) for _ in range(draw(st.integers(0, 2)))
        ),
        steps=tuple(draw(steps(number)) for number in range(draw(st.integers(1, 3)))),
        reward=draw(st.none() | st.floats(-1, 1)), verdict=draw(st.sampled_from(["", "passed", "failed"])),
        stop_reason=draw(st.sampled_from(["", "finished"])), patch=draw(TEXT),
    )  # fmt: skip


@QUICK
@given(records())
def test_atif_holds_any_record(record: Record) -> None:
    document, lost = atif.export(record)
    again, _ = atif.load(json.dumps(document))
    assert again == record and not len(lost)


@QUICK
@given(records())
def test_messages_hold_what_they_do_not_name_as_lost(record: Record) -> None:
    document, lost = messages.export(record)
    again, _ = messages.load(json.dumps(document), id=record.id, task=record.task, model=record.model)
    assert again.opening == record.opening and len(again.steps) == len(record.steps)
    for one, other in zip(again.steps, record.steps, strict=True):
        assert (one.content, one.thinking, one.calls, one.results) == (
            other.content,
            other.thinking,
            other.calls,
            other.results,
        )
    named = {line.partition(":")[0] for line in lost}
    assert ("excluded" in named) == any(step.excluded for step in record.steps)
    assert ("reward" in named) == bool(record.reward)


@QUICK
@given(records())
def test_mini_swe_agent_keeps_how_a_run_ended(record: Record) -> None:
    again, _ = messages.load_mini(json.dumps(messages.export_mini(record)[0]))
    for name in ("id", "task", "model", "reward", "verdict", "stop_reason", "patch"):
        assert getattr(again, name) == getattr(record, name), name


@st.composite
def tasks(draw: st.DrawFn) -> TaskSpec:
    paths = draw(st.lists(WORD.map("src/{}.py".format), min_size=1, max_size=3, unique=True))
    before = {path: draw(TEXT) for path in paths}
    changed = draw(st.lists(st.sampled_from(paths), min_size=1, unique=True))
    ids = [
        f"tests/test_{draw(WORD)}.py::test_{name}" for name in draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
    ]
    return TaskSpec(
        id=draw(WORD), source="mutation", instruction=draw(TEXT.filter(bool)), environment=InlineEnvironment(files=before),
        verifier=PytestVerifier(test_files={test_id.split("::")[0]: draw(TEXT) for test_id in ids}, fail_to_pass=tuple(ids)),
        gold={path: draw(TEXT) for path in changed}, family=draw(WORD),
    )  # fmt: skip


@QUICK
@given(tasks())
def test_harbor_directories_hold_any_task(tmp_path_factory, task: TaskSpec) -> None:
    store = EnvironmentStore(tmp_path_factory.mktemp("store"))
    folder = tmp_path_factory.mktemp("harbor") / task.id
    harbor.export(task, store)[0].write(folder)
    again, _ = harbor.to_task(harbor.read(folder), store)
    assert again == task and again.bundle_hash == task.bundle_hash


@QUICK
@given(tasks())
def test_rows_hold_patches_and_names_of_any_task(task: TaskSpec) -> None:
    assert isinstance(task.environment, InlineEnvironment) and isinstance(task.verifier, PytestVerifier)
    files = task.environment.files

    def read(path: str) -> TreeFile | None:
        return TreeFile(files[path].encode()) if path in files else None

    shown = {**task.gold, **task.verifier.test_files, **{path: files[path] for path in task.gold}}
    if any("\0" in text for text in shown.values()) or any("\0" in text for text in task.gold.values()):
        with pytest.raises(FormatRefused, match="holds a NUL"):
            swebench.export(task, read)
        return
    row, lost = swebench.export(task, read)
    (again,) = swebench.load("".join(swebench.lines([row])))
    made, _ = swebench.to_task(again, task.environment, read)
    assert made.verifier.fail_to_pass == task.verifier.fail_to_pass
    assert made.verifier.test_files == task.verifier.test_files and made.instruction == task.instruction
    assert {path: text for path, text in task.gold.items() if text != files[path]} == made.gold
    assert any(line.startswith("environment") for line in lost)
