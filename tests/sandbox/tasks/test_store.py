import pytest

from sandbox.errors import TaskInvalid
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from sandbox.tasks.store import TaskStore, load_bundle

TASK = TaskSpec(
    id="t",
    source="procedural",
    instruction="Fix it.",
    environment=InlineEnvironment(files={"a.py": "x = 1\n"}),
    verifier=CallsVerifier(module="a.py", function="f", cases=(("()", "1"),)),
    gold={"a.py": "x = 2\n"},
)


@pytest.fixture
def store(tmp_path):
    return TaskStore(tmp_path)


def bundle(tmp_path):
    (path,) = (tmp_path / "bundles").glob("*.json")
    return path


def test_round_trip(store):
    assert store.load(store.save(TASK)) == TASK
    store.save_list("mine", [TASK])
    assert store.has_list("mine") and store.load_list("mine") == [TASK]
    assert not store.has_list("other")


def test_a_changed_bundle_is_refused(store, tmp_path):
    digest = store.save(TASK)
    path = bundle(tmp_path)
    path.write_text(path.read_text().replace("x = 2", "x = 3"))
    with pytest.raises(TaskInvalid, match=rf"was changed: its hash is [0-9a-f]{{16}}, not {digest[:16]}"):
        store.load(digest)


@pytest.mark.parametrize(
    ("text", "cause"),
    [("", "is not valid: file: "), ("{", "is not valid"), ("[]", "is not valid"), ('{"id": "t"}', "Field required")],
)
def test_an_unreadable_bundle_is_refused(store, tmp_path, text, cause):
    digest = store.save(TASK)
    bundle(tmp_path).write_text(text)
    with pytest.raises(TaskInvalid, match=cause):
        store.load(digest)


def test_absent_bundles_and_lists(store, tmp_path):
    with pytest.raises(TaskInvalid, match="cannot be read: No such file"):
        store.load("0" * 64)
    with pytest.raises(TaskInvalid, match="cannot be read"):
        load_bundle(tmp_path)
    with pytest.raises(TaskInvalid, match="task list none is unreadable"):
        store.load_list("none")


def test_a_path_out_of_the_checkout_is_refused(store, tmp_path):
    store.save(TASK)
    path = bundle(tmp_path)
    path.write_text(path.read_text().replace('"a.py":"x = 1', '"../a.py":"x = 1'))
    with pytest.raises(TaskInvalid, match="not a plain relative path"):
        load_bundle(path)
