import pytest

from sandbox.harness.ordering import NOTHING, READS_ALL, WRITES_ALL, Access, must_wait
from sandbox.harness.profile import ALL_TOOLS, Profile, get_profile
from sandbox.harness.session import schema_hash_of, schemas_of, system_prompt
from sandbox.harness.tools import REGISTRY, select


def test_every_profile_tool_is_registered_once():
    assert tuple(REGISTRY) == ALL_TOOLS
    assert list(select(("grep", "finish"))) == ["grep", "finish"]
    with pytest.raises(ValueError, match="no_such_tool"):
        select(("no_such_tool",))


def test_schemas_are_strict_openai_functions():
    schemas = {s["function"]["name"]: s["function"]["parameters"] for s in schemas_of(get_profile("full"))}
    assert tuple(schemas) == ALL_TOOLS
    for parameters in schemas.values():
        assert parameters["type"] == "object"
        assert parameters["additionalProperties"] is False
        assert "title" not in parameters
    assert schemas["edit_file"]["required"] == ["path", "old_string", "new_string"]
    assert schemas["edit_file"]["properties"]["replace_all"]["default"] is False
    assert set(schemas["run_terminal_cmd"]["properties"]) == {"command", "background"}


def test_the_hash_follows_the_schemas_and_nothing_else():
    full, toy = get_profile("full"), get_profile("toy")
    assert schema_hash_of(full) == schema_hash_of(toy)
    assert schema_hash_of(full) != schema_hash_of(Profile("fewer", tools=("grep", "finish")))


def test_an_unknown_profile_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'huge'.*full, toy"):
        get_profile("huge")


def test_the_system_prompt_is_a_file():
    assert "edit_file" in system_prompt()


@pytest.mark.parametrize(
    ("call", "earlier", "waits"),
    [
        ((Access("a", True),), (Access("a", True),), True),
        ((Access("a", True),), (Access("b", True),), False),
        ((Access("a", False),), (Access("a", False),), False),
        (READS_ALL, READS_ALL, False),
        (READS_ALL, (Access("a", True),), True),
        ((Access("a", True),), READS_ALL, True),
        (WRITES_ALL, READS_ALL, True),
        (NOTHING, WRITES_ALL, False),
    ],
)
def test_calls_wait_only_for_effects_they_could_see(call, earlier, waits):
    assert must_wait(call, earlier) is waits
