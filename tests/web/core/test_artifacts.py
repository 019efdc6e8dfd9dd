"""The artifact store: whole blobs, safe keys, errors with words."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_web.core.artifacts import ArtifactError, ArtifactStore
from sandbox.grading.verdict.report import Report, Verdict


def test_a_blob_comes_back(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put_model("a/1/x.json.zst", Report(verdict=Verdict.PASSED))
    assert store.get_model("a/1/x.json.zst", Report).verdict is Verdict.PASSED
    assert store.children("a") == ["1"]
    assert [p.name for p in (tmp_path / "a" / "1").iterdir()] == ["x.json.zst"]
    store.remove_tree("a/1")
    store.remove_tree("a/1")
    assert store.children("a") == []


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.hidden", "a/b\n", "a" * 300, "a\0b"]
)
def test_a_key_never_leaves_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(ArtifactError, match="not a relative path"):
        ArtifactStore(tmp_path).put(key, b"")


def test_what_is_missing_damaged_or_unwritable_is_said(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(ArtifactError, match="is not in"):
        store.get("a/x")
    (tmp_path / "bad").write_bytes(b"not zstd")
    with pytest.raises(ArtifactError, match="cannot be read"):
        store.get("bad")
    store.put("text", b"{}")
    with pytest.raises(ArtifactError, match="is not a Report"):
        store.get_model("text", Report)
    with pytest.raises(ArtifactError, match="cannot write"):
        store.put("bad/below-a-file", b"x")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("composer_web.core.artifacts.MAX_BYTES", 1000)
    store = ArtifactStore(tmp_path)
    with pytest.raises(ArtifactError, match="its 100,000 bytes are more than the 1,000 that can be read back"):
        store.put("bomb", b"\0" * 100_000)
    store.put("bomb", b"\0" * 100_000, max_bytes=100_000)
    with pytest.raises(ArtifactError, match="cannot be read"):
        store.get("bomb")


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    store, report = ArtifactStore(tmp_path), Report(verdict=Verdict.PASSED, cause="x" * 2000)
    with pytest.raises(ArtifactError, match="use shorter contexts or fewer rollouts a group"):
        store.put_model("x", report, max_bytes=1000)
    assert not store.exists("x")
    store.put_model("x", report)
    with pytest.raises(ArtifactError, match="more than 1000 bytes"):
        store.get_model("x", Report, max_bytes=1000)
    assert store.get_model("x", Report) == report
