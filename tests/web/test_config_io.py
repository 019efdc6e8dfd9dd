"""A configuration as text and back: nothing is lost, and what is wrong is named with its line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from composer_web.core.errors import UserError
from composer_web.runs.config_io import DEEPEST, load, read, render
from composer_web.runs.forms import SCHEMA
from composer_web.runs.presets import PRESETS
from composer_web.runs.schema_form import FormField, nest, text_of
from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig

FORMATS = ("yaml", "toml")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.key)
def test_presets_come_back(preset, form) -> None:  # type: ignore[no-untyped-def]
    assert load(render(preset.config, form)) == preset.config


@pytest.mark.parametrize("form", FORMATS)
def test_none_and_odd_names_come_back(form) -> None:  # type: ignore[no-untyped-def]
    config = RunConfig(name="2026-01-01", policy="base@3", seed=7, stage=RLConfig(eval_suite=None))
    assert load(render(config, form)) == config
    assert load(render(config.model_copy(update={"name": "on"}), form)).name == "on"


def drawn(item: FormField) -> st.SearchStrategy[str]:
    match item.widget:
        case "check":
            return st.sampled_from(["true", ""])
        case "choice":
            return st.sampled_from(item.choices)
        case "integer":
            return st.integers(0, 10**6).map(text_of)
        case "number":
            return st.floats(0, 1, allow_nan=False).map(repr)
        case _:
            return st.sampled_from(
                ["", "train", "a = 1", "no", "1e3", "ü: [x] # y", "'\"\\", "line\nline", "~", "null"]
            )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["midtrain", "sft", "rl"]), st.data())
def test_every_valid_configuration_comes_back(stage: str, data: st.DataObject) -> None:
    """Any configuration that the model takes, with one to six settings drawn at random."""
    names = [
        n for n in SCHEMA.by_name if n != "name" and (not n.startswith("stage.") or n.startswith(f"stage.{stage}."))
    ]
    base = {"midtrain": MidtrainConfig(), "sft": SFTConfig(), "rl": RLConfig()}[stage]
    from composer_web.runs.schema_form import flatten

    values = flatten(SCHEMA, RunConfig(name="x", stage=base))
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True)):
        values[name] = data.draw(drawn(SCHEMA.by_name[name]))
    try:
        config = RunConfig.model_validate(nest(SCHEMA, values))
    except ValidationError:
        return
    for form in FORMATS:
        back = load(render(config, form))  # type: ignore[arg-type]
        expected = config.model_dump()
        if form == "toml" and stage == "rl" and expected["stage"]["eval_suite"] == "":
            expected["stage"]["eval_suite"] = None  # both mean that nothing is evaluated
        assert back.model_dump() == expected
        assert all(not isinstance(v, float) or math.isfinite(v) for v in expected["stage"].values())


YAML = """name: short
# what it starts from
policy: base
stage:
  kind: rl
  steps: minus
  sampling:
    temperature: 9
  reward: {tests_weight: 1, wrong_name: 2}
"""
TOML = """name = "short"

[stage]
kind = "rl"
steps = "minus"

[stage.sampling]
temperature = 9
"""


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (YAML, "stage.steps", 6),
        (YAML, "stage.sampling.temperature", 8),
        (YAML, "stage.reward.wrong_name", 9),
        (TOML, "stage.steps", 5),
        (TOML, "stage.sampling.temperature", 8),
        ('{"name": "x",\n "stage": {"kind": "rl", "steps": 0}}', "stage.steps", 2),
        ("name: x\nstage:\n  kind: walk\n", "stage", 2),
        ('name = "x"\nstage.kind = "rl"\nstage.steps = -1\n', "stage.steps", 3),
    ],
)
def test_errors_name_the_field_and_the_line(text: str, field: str, line: int) -> None:
    with pytest.raises(UserError) as caught:
        load(text)
    assert caught.value.fields[field].startswith(f"line {line}: "), caught.value.fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("- 1\n- 2\n", "line 1: expected name"),
        ("just words", "expected name"),
        ("name: x\nname: y\n", "line 2: name is set twice, first on line 1"),
        ('name = "x"\nname = "y"\n', "at line 2"),
        ("name: [x\nstage: y", "line 2"),
        ("a: &a [1]\nb: *a\n", "line 2: aliases"),
        ("name: " + "[" * (DEEPEST + 1), "line 1: nested deeper"),
        ("name = " + "[" * 20_000, "not TOML|lists within lists"),
        ("x" * 70_000, "at most 65536"),
        ("name: \x00", "NUL"),
        ("name: !!python/object/apply:os.system [id]", "line 1"),
        ("? [a]\n: 1\n", "line 1: a setting's name is plain text"),
        ("name: \x01x", "not YAML"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(text)


def test_json_is_read_with_its_lines() -> None:
    assert read('{"name": "x", "seed": 3}').data == {"name": "x", "seed": 3}
