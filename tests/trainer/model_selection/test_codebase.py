"""Base models on a codebase of one's own: what is recent in a real repository, and that the model that knows it wins."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.model_selection.codebase import Codebase, NothingToMeasure, Recent, by_file, read_codebase
from trainer.model_selection.scores import Selection, compare, difference, rate
from trainer.model_selection.selection import asked_codebase, main, score, select
from trainer.toy.model import build_tiny_model

OLD = "def total(values):\n    out = 0\n    for value in values:\n        out += value\n    return out\n"
NEW = "\n\ndef ledger(entries):\n    return {entry.account: entry.amount for entry in entries if entry.settled}\n"


def commit(root: Path, day: int, **files: str) -> None:
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    when = {"GIT_AUTHOR_DATE": f"2026-01-{day:02}T12:00:00Z", "GIT_COMMITTER_DATE": f"2026-01-{day:02}T12:00:00Z"}
    for command in (["add", "-A"], ["commit", "-qm", "a change"]):
        subprocess.run(["git", "-C", str(root), *command], check=True, env=os.environ | who | when)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits; the last one adds a function to one file and takes a line out of another."""
    root = tmp_path / "shop"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    commit(root, 1, total=OLD, names="A = 1\nB = 2\n")
    commit(root, 10, other="def other():\n    return 1\n")
    commit(root, 20, total=OLD + NEW, names="B = 2\n")
    return root


def recent_text(codebase: Codebase) -> str:
    return "".join(codebase.text[piece.start : piece.stop] for piece in codebase.pieces if piece.recent)


@pytest.mark.parametrize(
    "recent", [Recent(commits=1), Recent(since="2026-01-11"), Recent(since="2026-01-20T11:59:00Z")]
)
def test_lines_of_recent_commits_are_told_apart(repository: Path, recent: Recent) -> None:
    codebase = read_codebase(repository, recent, max_bytes=100_000)
    assert codebase.files == ["names.py", "other.py", "total.py"] and codebase.name == "shop"
    assert recent_text(codebase) == NEW
    assert codebase.text == f"# names.py\nB = 2\n\n# other.py\ndef other():\n    return 1\n\n# total.py\n{OLD}{NEW}\n"
    assert [piece.start for piece in codebase.pieces[1:]] == [piece.stop for piece in codebase.pieces[:-1]]
    assert codebase.pieces[-1].stop == len(codebase.text)


def test_more_commits_make_more_recent_and_a_small_room_keeps_what_is_recent(repository: Path) -> None:
    two = read_codebase(repository, Recent(commits=2), max_bytes=100_000)
    assert recent_text(two) == "def other():\n    return 1\n" + NEW
    assert read_codebase(repository, Recent(commits=99), max_bytes=100_000).before == two.before
    assert read_codebase(repository, Recent(commits=1), max_bytes=1).files == ["total.py"]


def test_odd_lines_are_counted_as_git_counts_them(repository: Path) -> None:
    commit(repository, 21, total="+++ b/names.py\n@@ -1 +1 @@\n\x0c\n" + OLD, odd="x = 1\r\ny = '\u2028'\nlast")
    codebase = read_codebase(repository, Recent(commits=1), max_bytes=100_000)
    assert recent_text(codebase) == "x = 1\r\ny = '\u2028'\nlast" + "+++ b/names.py\n@@ -1 +1 @@\n\x0c\n"


def test_what_cannot_be_measured_is_named(repository: Path, tmp_path: Path) -> None:
    one, plain = tmp_path / "one", tmp_path / "plain"
    for folder in (one, plain):
        folder.mkdir()
    (plain / "a.py").write_text(OLD)
    subprocess.run(["git", "init", "-q", str(one)], check=True)
    commit(one, 1, total=OLD)
    for root, recent, words in (
        (one, Recent(commits=5), "history of one commit.*git fetch --unshallow"),
        (plain, Recent(commits=5), "no git repository.*ask for 0 commits"),
        (repository, Recent(since="2026-02-01"), "no commit since 2026-02-01, the newest is of 2026-01-20"),
    ):
        with pytest.raises(NothingToMeasure, match=words):
            read_codebase(root, recent, max_bytes=1000)
    commit(repository, 22, names="")
    with pytest.raises(NothingToMeasure, match="no line of a text file was added in the last 1 commits"):
        read_codebase(repository, Recent(commits=1), max_bytes=1000)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToMeasure, match="no text of a known language"):
        read_codebase(tmp_path / "empty", Recent(), max_bytes=1000)
    usual = {"commits": None, "since": "", "window": 64, "max_bytes": 1000, "items": 1}
    for wrong, words in (
        ({"since": "yesterday"}, "--since is 'yesterday'; write a date"), ({"window": 1}, "--window is 1"),
        ({"items": 0}, "--items is 0"), ({"commits": -1}, "--commits is -1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            asked_codebase(repository, **usual | wrong)  # type: ignore[arg-type]


def test_bits_are_given_to_the_lines_in_which_tokens_begin(repository: Path) -> None:
    policy = policies.load(BASE_POLICY)
    codebase = read_codebase(repository, Recent(commits=1), max_bytes=100_000)
    found = score(policy, codebase, window=1024)
    assert sum(file.bits for file in found.files) == pytest.approx(found.nats / math.log(2), rel=1e-6)
    assert sum(file.bytes for file in found.files) == len(codebase.text.encode())
    by_name = {file.path: file for file in found.files}
    assert by_name["total.py"].recent_bytes == len(NEW.encode()) and by_name["other.py"].recent_bits == 0
    assert 0 < by_name["total.py"].recent_bits < by_name["total.py"].bits
    letters = [(at, at + 1) for at in range(len(codebase.text))]  # a tokenizer of letters: a bit each
    assert [f.bits for f in by_file(codebase, letters, [1.0] * len(letters))] == [f.bytes for f in found.files]


def test_a_tokenizer_of_another_policy_is_named(repository: Path) -> None:
    policy = policies.load(BASE_POLICY)
    codebase = read_codebase(repository, Recent(commits=1), max_bytes=100_000)
    policy.model.resize_token_embeddings(10)
    with pytest.raises(ValueError, match="the weights know 10 tokens: they are of different policies"):
        score(policy, codebase, window=64)


def test_intervals_hold_what_is_measured_and_pairs_narrow_them() -> None:
    ours = [(float(n), 10.0) for n in range(1, 40)]
    theirs = [(bits + 1.0, size) for bits, size in ours]
    whole = rate(ours)
    assert whole.value == pytest.approx(2.0) and whole.low < 2.0 < whole.high
    apart = difference(ours, theirs)
    assert apart.low == pytest.approx(-0.1) and apart.high == pytest.approx(-0.1), "the same files in every draw"
    assert rate([(3.0, 2.0), (5.0, 0.0)]).value == 1.5, "a file without recent lines says nothing of them"


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two tiny models of one seed; the second was trained on the code of the repository."""
    root, base = tmp_path_factory.mktemp("candidates"), policies.load(BASE_POLICY)
    folders = []
    for name, steps in (("fresh", 0), ("trained", 25)):
        model = build_tiny_model(base.tokenizer, 3)
        ids = torch.tensor([base.tokenizer(OLD + NEW, add_special_tokens=False)["input_ids"]])
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
        made = policies.Policy(model.eval(), base.tokenizer, base.renderer, root)
        folders.append(policies.save(made, root / name))
    return folders[0], folders[1]


def test_the_model_that_knows_the_code_wins(repository: Path, candidates: tuple[Path, Path]) -> None:
    codebase = read_codebase(repository, Recent(commits=1), max_bytes=100_000)
    fresh, trained = (select(folder, codebase, window=128, items=1, changes=1) for folder in candidates)
    assert trained.bits_per_byte.value < fresh.bits_per_byte.value
    assert trained.recent_bits_per_byte is not None and fresh.recent_bits_per_byte is not None
    assert trained.recent_bits_per_byte.value < 0.8 * fresh.recent_bits_per_byte.value
    found = compare(trained, fresh)
    assert found.bits_per_byte.value == pytest.approx(trained.bits_per_byte.value - fresh.bits_per_byte.value)
    assert found.bits_per_byte.value < 0 and found.recent_bits_per_byte is not None
    assert found.recent_bits_per_byte.high < 0
    assert fresh.unknown_tokens == 0 and fresh.bytes_per_second > 0 and fresh.window == 128
    other = read_codebase(repository, Recent(commits=1), max_bytes=1)
    with pytest.raises(ValueError, match="measure both in one command"):
        compare(trained, select(candidates[0], other, items=1, changes=1))


def test_the_command_prints_a_line_each_and_their_difference(
    repository: Path, candidates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["selection", "--codebase", str(repository), "--commits", "1", *words])
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return 0

    assert (
        run(*(word for folder in candidates for word in ("--policy", str(folder))), "--items", "1", "--window", "64")
        == 0
    )
    first, second, apart = capsys.readouterr().out.splitlines()
    assert Selection.model_validate_json(first[:-1] + ', "files": []}').window == 64
    assert str(candidates[1]) in second and '"other"' in apart
    assert run("--policy", str(candidates[0]), "--since", "soon") == 2
    assert "not allowed with" in capsys.readouterr().err
    assert run("--policy", "/nowhere") == 1
    assert "error: policy 'nowhere' is unreadable" in capsys.readouterr().err
