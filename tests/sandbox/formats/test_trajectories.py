"""Trajectories in other formats: there and back, and what is lost is said."""

import json

import pytest

from sandbox.formats import atif, messages
from sandbox.formats.base import FormatRefused
from tests.sandbox.formats.examples import RECORD


def test_atif_there_and_back_loses_nothing():
    document, losses = atif.export(RECORD)
    assert len(losses) == 0 and document["schema_version"] == "ATIF-v1.8"
    again, lost = atif.load(json.dumps(document))
    assert again == RECORD and len(lost) == 0
    step = document["steps"][3]
    assert step["metrics"]["completion_token_ids"] == [7, 8] and step["metrics"]["logprobs"] == [-0.5, -0.25]
    assert document["steps"][2]["is_copied_context"] is True
    assert [s["step_id"] for s in document["steps"]] == [1, 2, 3, 4, 5]


def test_atif_of_others_says_what_is_left_out():
    document = {
        "schema_version": "ATIF-v1.6", "agent": {"name": "other", "version": "2"}, "notes": "by hand",
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "hi"}, {"type": "image"}]},
            {"step_id": 2, "source": "agent", "message": "ok", "metrics": {"cost_usd": 0.1},
             "tool_calls": [{"tool_call_id": "1", "function_name": "ls", "arguments": {"a": 1}}],
             "observation": {"results": [{"content": "files"}]}},
        ],
    }  # fmt: skip
    record, losses = atif.load(json.dumps(document))
    assert record.steps[0].calls[0].arguments == '{"a": 1}' and record.steps[0].results[0].content == "files"
    assert {line.split(":")[0] for line in losses} == {"notes", "message", "metrics.cost_usd"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": "ATIF-v1.12"}, "newer than ATIF-v1.8"),
        ({"schema_version": "7"}, "not one of ATIF-v1"),
        ({"agent": None}, "agent of the trajectory is NoneType"),
        ({"steps": [{"step_id": 2, "source": "user", "message": "x"}]}, "step_id is 2, not 1"),
        ({"steps": [{"step_id": 1, "source": "agent"}]}, "step 1: KeyError: 'message'"),
    ],
)
def test_bad_atif_is_refused_by_its_field(change, said):
    document = {**atif.export(RECORD)[0], **change}
    with pytest.raises(FormatRefused, match=said):
        atif.load(json.dumps(document))


@pytest.mark.parametrize("data", [b"\xff", "{", "[1]", "[" * 100_000], ids=["bytes", "cut", "list", "deep"])
def test_what_is_no_document_is_refused(data):
    for load in (atif.load, messages.load_mini):
        with pytest.raises(FormatRefused):
            load(data)


def test_messages_keep_the_sampled_arguments():
    made, losses = messages.export(RECORD)
    assert made[3]["tool_calls"][0]["function"]["arguments"] == '{"path":  "a.py"}'
    assert [m["role"] for m in made] == ["system", "user", "assistant", "assistant", "tool", "tool", "assistant"]
    assert {line.split(":")[0] for line in losses} >= {"token ids and log-probabilities", "reward", "patch", "excluded"}
    again, lost = messages.load(json.dumps(made))
    assert messages.export(again)[0] == made and len(lost) == 0


def test_mini_there_and_back_loses_only_what_messages_cannot_hold():
    document, losses = messages.export_mini(RECORD)
    assert set(losses.found) == {"token ids and log-probabilities", "excluded", "error", "seconds"}
    again, lost = messages.load_mini(json.dumps(document))
    assert len(lost) == 0 and messages.export_mini(again)[0] == document
    kept = {"id", "task", "model", "reward", "verdict", "stop_reason", "patch", "tools", "extra", "opening"}
    assert all(getattr(again, name) == getattr(RECORD, name) for name in kept)


def test_mini_of_an_agent_without_tool_calls():
    words = [("system", "s"), ("user", "t"), ("assistant", "```bash\nls\n```"), ("user", "a.py"), ("assistant", "done")]
    said = [{"role": role, "content": content} for role, content in words]
    document = {"trajectory_format": "mini-swe-agent-1.1", "info": {"exit_status": "Submitted"}, "messages": said}
    record, losses = messages.load_mini(json.dumps(document))
    assert len(record.steps) == 2 and record.steps[0].results[0].content == "a.py" and len(losses) == 1
    with pytest.raises(FormatRefused, match=r"newer than mini-swe-agent-1\.1"):
        messages.load_mini(json.dumps({**document, "trajectory_format": "mini-swe-agent-2.0"}))


@pytest.mark.parametrize(
    "message", [{"role": "wizard", "content": ""}, {"content": "x"}, "text", {"role": "tool", "content": "x"}]
)
def test_a_bad_message_is_refused_by_its_number(message):
    with pytest.raises(FormatRefused, match="message 0: "):
        messages.load(json.dumps([message]))
