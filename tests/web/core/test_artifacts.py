"""The artifact store, in a folder and in a bucket: whole blobs, safe keys, errors with words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from composer_web.core.artifacts import ArtifactError, ArtifactStore, ArtifactUnusable
from composer_web.system.health import check_artifacts
from sandbox.grading.verdict.report import Report, Verdict
from tests.support.buckets import new_bucket, s3_endpoint


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_endpoint() as url:
        yield url


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(endpoint, monkeypatch)


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "folder":
        return ArtifactStore(tmp_path)
    return ArtifactStore(f"s3://{request.getfixturevalue('bucket')}/team-a")


def write_raw(store: ArtifactStore, key: str, data: bytes) -> None:
    """Put bytes where the store would look for the blob."""
    if isinstance(store.place, Path):
        (store.place / key).write_bytes(data)
    else:
        bucket, _, prefix = store.place.removeprefix("s3://").partition("/")
        boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=data)


def read_raw(store: ArtifactStore, key: str) -> bytes:
    if isinstance(store.place, Path):
        return (store.place / key).read_bytes()
    bucket, _, prefix = store.place.removeprefix("s3://").partition("/")
    return bytes(boto3.client("s3").get_object(Bucket=bucket, Key=f"{prefix}/{key}")["Body"].read())


def test_a_blob_comes_back(store: ArtifactStore) -> None:
    assert not store.exists("a/1/x.json.zst") and store.children("a") == []
    store.put_model("a/1/x.json.zst", Report(verdict=Verdict.FAILED))
    store.put_model("a/1/x.json.zst", Report(verdict=Verdict.PASSED))
    store.put_model("a/2.json.zst", Report(verdict=Verdict.PASSED))
    assert store.get_model("a/1/x.json.zst", Report).verdict is Verdict.PASSED
    assert store.exists("a/1/x.json.zst") and not store.exists("a/1")
    assert store.children("a") == ["1", "2.json.zst"] and store.children("a/1") == ["x.json.zst"]
    store.remove_tree("a/1")
    store.remove_tree("a/1")
    assert store.children("a") == ["2.json.zst"]


def test_blobs_are_sized_and_removed_as_far_as_they_exist(store: ArtifactStore) -> None:
    assert store.sizes("groups/1") == {}
    sizes = {f"groups/1/{name}.zst": store.put(f"groups/1/{name}.zst", name.encode()) for name in ("a", "b/c")}
    store.put("groups/10/a.zst", b"of another group")
    assert store.sizes("groups/1") == sizes
    store.remove([*sizes, "groups/1/never.zst"])
    store.remove(sizes)
    assert store.sizes("groups/1") == {} and store.exists("groups/10/a.zst")


def test_nothing_but_the_blob_is_left_in_the_folder(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "new")
    store.put("a/1/x", b"x")
    assert [path.name for path in (tmp_path / "new" / "a" / "1").iterdir()] == ["x"]
    store.remove_tree("a/1")
    assert not (tmp_path / "new" / "a" / "1").exists()


def test_a_large_blob_is_written_in_parts_and_streamed(store: ArtifactStore) -> None:
    content = os.urandom(13 << 20)
    assert store.put("large", content) > len(content)
    assert store.get("large") == b"".join(store.stream("large")) == content
    assert store.unpacked_bytes("large") == len(content)
    store.verify("large", max_bytes=len(content))


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.hidden", "a/b\n", "a" * 300, "a\0b"]
)
def test_a_key_never_leaves_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(ArtifactError, match="not a relative path"):
        ArtifactStore(tmp_path).put(key, b"")


def test_what_is_missing_or_damaged_is_said(store: ArtifactStore) -> None:
    store.put("text", b"{}")
    for refused in (store.get, store.unpacked_bytes, store.stream):
        with pytest.raises(ArtifactUnusable, match="is not in"):
            refused("a/x")
    with pytest.raises(ArtifactError, match="is not a Report"):
        store.get_model("text", Report)
    write_raw(store, "bad", b"not zstd")
    with pytest.raises(ArtifactUnusable, match="cannot be read"):
        store.get("bad")


@pytest.mark.parametrize("cut", [1, 5, 1000])
def test_a_blob_that_was_cut_is_refused_by_every_reader(store: ArtifactStore, cut: int) -> None:
    store.put("whole", os.urandom(100_000))
    write_raw(store, "cut", read_raw(store, "whole")[:-cut])
    with pytest.raises(ArtifactUnusable):
        store.get("cut")
    with pytest.raises(ArtifactUnusable):
        store.verify("cut", max_bytes=1 << 20)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    (tmp_path / "bad").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"cannot write .* error: .*; free disk space") as error:
        store.put("bad/below-a-file", b"x")
    assert "\n" not in str(error.value)


def test_a_store_that_does_not_answer_has_lost_nothing(bucket: str, tmp_path: Path) -> None:
    for store in (ArtifactStore(f"s3://{bucket}-of-nobody/x"), ArtifactStore(tmp_path / "not-mounted")):
        with pytest.raises(ArtifactError) as error:
            store.verify("a", max_bytes=1)
        assert not isinstance(error.value, ArtifactUnusable)
    with pytest.raises(ArtifactError, match="check the bucket, its rights and the network"):
        ArtifactStore(f"s3://{bucket}-of-nobody/x").put("a", b"")


def test_health_says_whether_the_bucket_answers(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from composer_web.core.artifacts import artifacts
    from composer_web.env import env

    assert check_artifacts()[0]
    for name, well in ((bucket, True), (f"{bucket}-of-nobody", False)):
        monkeypatch.setattr(env(), "artifact_store", f"s3://{name}/x")
        artifacts.cache_clear()
        ok, said, _ = check_artifacts()
        assert ok is well and name in said
    assert "check the bucket" in said
    artifacts.cache_clear()


def test_a_bomb_is_not_unpacked(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("composer_web.core.artifacts.MAX_BYTES", 1000)
    with pytest.raises(ArtifactError, match="its 100,000 bytes are more than the 1,000 that can be read back"):
        store.put("bomb", b"\0" * 100_000)
    store.put("bomb", b"\0" * 100_000, max_bytes=100_000)
    with pytest.raises(ArtifactError, match="cannot be read"):
        store.get("bomb")


def test_what_could_not_be_read_back_is_not_written(store: ArtifactStore) -> None:
    report = Report(verdict=Verdict.PASSED, cause="x" * 2000)
    with pytest.raises(ArtifactError, match="use shorter contexts or fewer rollouts a group"):
        store.put_model("x", report, max_bytes=1000)
    assert not store.exists("x")
    store.put_model("x", report)
    with pytest.raises(ArtifactError, match="more than 1000 bytes"):
        store.get_model("x", Report, max_bytes=1000)
    assert store.get_model("x", Report) == report
