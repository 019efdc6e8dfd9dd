"""Grades of a language model against a real HTTP server in the documented shape of chat completions."""

from __future__ import annotations

import json

import pytest

from sandbox.grading.audit.judge import Endpoint, rubric
from tests.sandbox.grading.audit.model_server import Server, boundary_of, completion
from tests.trainer.rollouts.make import trajectory
from trainer.config import BehaviourConfig, RewardConfig
from trainer.rewards import RewardError, score
from trainer.rewards.rubric import RewardJudge, reward_rubric, rubric_of, use

ON = RewardConfig(behaviour=BehaviourConfig(rubric=0.5))
ASPECTS = [aspect.id for aspect in reward_rubric().aspects]


class Kept(dict[str, str]):
    def put(self, key: str, value: str) -> None:
        self[key] = value


def grades(request, *given: int) -> str:
    rows = [{"aspect": a, "grade": g, "reason": "r"} for a, g in zip(ASPECTS, given, strict=False)]
    return json.dumps({"record": boundary_of(request), "grades": rows})


@pytest.fixture
def server():
    made = Server()
    made.reply = lambda request: (200, completion(grades(request, 4, 3, 2, 1)))
    cache = Kept()
    use(lambda: RewardJudge(Endpoint(url=made.url, model="model-a", timeout=20.0), cache=cache))
    yield made
    use(lambda: None)
    made.close()


def rubric_part(config=ON, **changes):
    scored = score(trajectory().model_copy(update=changes), config)
    return next(part for part in scored.reward_parts if part.name == "rubric")


def test_the_mean_grade_is_the_value_and_says_what_graded_it(server):
    part = rubric_part()
    assert (part.value, part.weight, part.version) == (10 / 16, 0.5, reward_rubric().version)
    assert part.detail["model"] == "model-a"
    assert part.detail["rubric"] == f"{reward_rubric().version}/{reward_rubric().digest}"
    assert {part.detail[a.removeprefix("judge-")] for a in ASPECTS} == {1, 2, 3, 4}


def test_the_same_record_is_asked_about_once_whatever_its_verdict(server):
    first = rubric_part()
    assert rubric_part(reward=1.0) == first
    assert len(server.requests) == 1
    rubric_part(patch="+other")
    assert len(server.requests) == 2
    sent = json.dumps(server.requests[0])
    assert "passed" not in sent.replace("tests pass", "") and "verdict" not in sent


def test_it_asks_by_its_own_rubric(server):
    rubric_part()
    system = server.requests[0]["messages"][0]["content"]
    assert all(aspect in system for aspect in ASPECTS)
    assert reward_rubric().digest != rubric().digest


@pytest.mark.parametrize(
    "reply",
    [
        lambda r: (200, completion(grades(r, 4, 3))),
        lambda r: (200, completion(grades(r, 4, 3, 2, 9))),
        lambda r: (200, completion(json.dumps({"record": "record-0", "grades": []}))),
        lambda r: (200, completion("no JSON")),
        lambda r: (401, {}),
    ],
)
def test_no_grade_is_missing_data_and_never_a_zero(server, reply):
    server.reply = reply
    with pytest.raises(RewardError, match=r"reward part 'rubric' failed.*JudgeError"):
        rubric_part()


def test_without_an_endpoint_the_error_says_what_to_set():
    with pytest.raises(RewardError, match="OPENCOMPOSER_JUDGE_URL"):
        rubric_part()
    assert score(trajectory(), RewardConfig()).reward == 1.0


OWN = """
tests 3: Are the tests of the change worth keeping?

kindness: Is the last message kind?
"""


def test_a_rubric_of_ones_own_is_asked_by_weighed_and_named(server):
    behaviour = BehaviourConfig(rubric=0.5, rubric_text=OWN, rubric_highest=10)
    given = {"judge-tests": 10, "judge-kindness": 2}
    server.reply = lambda r: (
        200,
        completion(
            json.dumps({"record": boundary_of(r), "grades": [{"aspect": a, "grade": g} for a, g in given.items()]})
        ),
    )
    part = rubric_part(RewardConfig(behaviour=behaviour))
    assert part.value == (3 * 10 + 2) / (4 * 10)
    assert (part.detail["tests"], part.detail["kindness"]) == (10, 2)
    system = server.requests[0]["messages"][0]["content"]
    assert "Are the tests of the change worth keeping?" in system and "from 0 (poor) to 10 (excellent)" in system
    assert "its grade is 5." in system and ASPECTS[0] not in system
    assert part.detail["rubric"] != f"{reward_rubric().version}/{reward_rubric().digest}"
    # Another question is asked anew; the same one is not.
    rubric_part(RewardConfig(behaviour=behaviour))
    assert len(server.requests) == 1
    rubric_part(RewardConfig(behaviour=behaviour.model_copy(update={"rubric_text": OWN.replace("kind?", "short?")})))
    assert len(server.requests) == 2
    given["judge-tests"] = 11
    with pytest.raises(RewardError, match="gave judge-tests 11; grades go from 0 to 10"):
        rubric_part(RewardConfig(behaviour=behaviour), patch="+other")


def test_the_built_in_rubric_keeps_its_name():
    assert (rubric_of(BehaviourConfig()), reward_rubric().digest) == (reward_rubric(), "7943ce249552ea9b")


@pytest.mark.parametrize(
    ("text", "why"),
    [("no question", "line 1: 'no question' is not"), ("a: x\nB 2: y", "line 2"), ("a 0: x", "line 1"),
     ("a: x\na: y", "names an aspect twice")],
)  # fmt: skip
def test_a_rubric_that_cannot_be_read_is_refused_by_line(text, why):
    with pytest.raises(ValueError, match=why):
        BehaviourConfig(rubric_text=text)
