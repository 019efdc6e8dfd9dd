"""The order of prompts: the same by default, within a window, harder later, in a mix."""

import random
from collections import Counter

import pytest
from pydantic import ValidationError

from trainer.config import CurriculumConfig
from trainer.orchestrator.curriculum import Candidate, admitted, arrange
from trainer.toy.preset import toy_rl

RATES = (0.0, 0.2, 0.5, 0.8, 1.0, None)
POOL = [Candidate(n, ("debug", "feature")[n % 2], RATES[n % 6]) for n in range(240)]
random.Random(1).shuffle(POOL)
BY_KEY = {one.key: one for one in POOL}


def test_by_default_nothing_changes():
    assert arrange(POOL, toy_rl().curriculum, prompts=100, seed="s") == [one.key for one in POOL]


@pytest.mark.parametrize(
    ("config", "rates"),
    [
        (CurriculumConfig(min_pass_rate=0.1, max_pass_rate=0.9), {0.2, 0.5, 0.8, None}),
        (CurriculumConfig(drop_solved_all=True, drop_solved_none=True, unmeasured="skip"), {0.2, 0.5, 0.8}),
        (CurriculumConfig(min_pass_rate=0.5, max_pass_rate=0.5, unmeasured="skip"), {0.5}),
    ],
)
def test_the_window_of_difficulty(config, rates):
    assert {one.pass_rate for one in admitted(POOL, config)} == rates


def test_each_task_comes_once_and_the_order_is_repeatable():
    config = CurriculumConfig(easy_to_hard=1.0, categories="debug=2, feature=1")
    order = arrange(POOL, config, prompts=240, seed="7")
    assert sorted(order) == list(range(240)) == sorted(set(order))
    assert order == arrange(POOL, config, prompts=240, seed="7") != arrange(POOL, config, prompts=240, seed="8")


def test_harder_tasks_come_later():
    order = arrange(POOL, CurriculumConfig(easy_to_hard=1.0, unmeasured="skip"), prompts=120, seed="7")

    def mean(keys):
        return sum(BY_KEY[key].pass_rate for key in keys) / len(keys)

    assert mean(order[:40]) > 0.65 and mean(order[80:120]) < 0.45
    flat = arrange(POOL, CurriculumConfig(unmeasured="skip"), prompts=120, seed="7")
    assert abs(mean(flat[:40]) - mean(flat[80:120])) < 0.25


def test_categories_come_in_their_mix():
    order = arrange(POOL, CurriculumConfig(categories="debug=3, feature=1"), prompts=100, seed="7")
    counts = Counter(BY_KEY[key].category for key in order[:100])
    assert 62 <= counts["debug"] <= 88
    alone = arrange(POOL, CurriculumConfig(categories="feature=1"), prompts=100, seed="7")
    assert {BY_KEY[key].category for key in alone[:120]} == {"feature"} and len(alone) == 240


@pytest.mark.parametrize(
    "bad", [{"min_pass_rate": 0.9, "max_pass_rate": 0.1}, {"categories": "debug"}, {"categories": "a=x"}]
)
def test_a_bad_configuration_is_refused(bad):
    with pytest.raises(ValidationError):
        CurriculumConfig(**bad)


def test_effort_tells_tasks_of_one_pass_rate_apart():
    """Half of the tasks take many turns and much thought; all are solved half of the time."""
    pool = [Candidate(n, "", 0.5, turns=20.0 * (n % 2), thinking_tokens=900.0 * (n % 2)) for n in range(200)]

    def hard_share(config):
        return sum(key % 2 for key in arrange(pool, config, prompts=60, seed="7")[:60]) / 60

    assert 0.3 < hard_share(CurriculumConfig(harder=1.0)) < 0.7, "by pass rate they are alike"
    assert hard_share(CurriculumConfig(harder=1.0, difficulty="effort")) > 0.8
    assert hard_share(CurriculumConfig(difficulty="effort")) == hard_share(CurriculumConfig())
