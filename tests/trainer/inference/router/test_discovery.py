"""The list of servers behind a router or the server in front of vLLM: read again, names asked again, problems in words."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.inference.conftest import write_members
from trainer.inference.discovery import ReplicaRegistry, ReplicaSpec, fixed_replicas, replica_arguments


@dataclass(eq=False)
class Server:
    spec: ReplicaSpec
    draining: bool = False


def listed(registry: ReplicaRegistry[Server]) -> dict[str, bool]:
    """Address, and whether it stays."""
    return {replica.spec.url: not replica.draining for replica in registry.replicas}


async def test_servers_join_leave_and_come_back_by_the_file(tmp_path: Path) -> None:
    file = tmp_path / "members.json"
    write_members(file, [{"url": "http://a:1"}, {"url": "http://b:1/"}])
    registry = ReplicaRegistry(Server, file=file)
    await registry.refresh()
    assert listed(registry) == {"http://a:1": True, "http://b:1": True}
    first = registry.replicas[0]
    write_members(file, [{"url": "http://c:1"}, {"url": "http://b:1", "cluster": "far"}])
    await registry.refresh()
    assert listed(registry) == {"http://a:1": False, "http://b:1": True, "http://c:1": True}
    assert registry.replicas[1].spec.cluster == "far"  # the same server, told anew
    write_members(file, [{"url": "http://a:1"}])
    await registry.refresh()
    assert registry.replicas[0] is first and not first.draining  # before it was drained: it stays after all
    for replica in [m for m in registry.replicas if m.draining]:
        registry.forget(replica)
    assert listed(registry) == {"http://a:1": True}
    assert registry.problem == ""
    registry.close()


async def test_a_list_that_cannot_be_used_changes_nothing_and_is_told(tmp_path: Path) -> None:
    file = tmp_path / "members.json"
    registry = ReplicaRegistry(Server, file=file)
    await registry.refresh()
    assert "does not exist; write a list of replicas there" in registry.problem and not registry.replicas
    write_members(file, [{"url": "http://a:1"}])
    await registry.refresh()
    assert registry.problem == ""
    for text, words in (
        ("[", "Invalid JSON"),
        ('[{"url": "http://a:1"}, {"url": "http://a:1/"}]', "names an engine twice"),
        ('[{"url": "https://a:1", "each": true}]', "list the servers one by one"),
        ('[{"url": "http://a:1", "production": true}]', "only a router borrows servers of others"),
    ):
        file.write_text(text)
        for _ in range(2):  # it is not forgotten at the next look
            await registry.refresh()
            assert words in registry.problem and str(file) in registry.problem
        assert listed(registry) == {"http://a:1": True}
    file.unlink()
    await registry.refresh()
    assert "does not exist" in registry.problem and listed(registry) == {"http://a:1": True}
    write_members(file, [])  # as new as the last one that was read, say: its size differs
    os.utime(file, ns=(0, 0))
    await registry.refresh()
    assert registry.problem == "" and listed(registry) == {"http://a:1": False}
    registry.close()


async def test_a_router_may_list_what_it_borrows_and_fixed_ones_need_no_file(tmp_path: Path) -> None:
    file = tmp_path / "members.json"
    registry = ReplicaRegistry(Server, file=file, fixed=[ReplicaSpec(url="http://a:1")], lends=True)
    await registry.refresh()
    assert registry.problem == "" and listed(registry) == {"http://a:1": True}
    write_members(file, [{"url": "http://b:1", "production": True}, {"url": "http://a:1"}])
    await registry.refresh()
    assert listed(registry) == {"http://a:1": True, "http://b:1": True} and registry.replicas[1].spec.production
    file.unlink()
    await registry.refresh()
    assert registry.problem == "" and listed(registry) == {"http://a:1": True, "http://b:1": False}
    registry.close()


async def test_a_name_of_several_servers_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of a service of compose come and go with its name's addresses; one that cannot be asked changes nothing."""
    addresses: list[str] = ["10.0.0.1", "10.0.0.2", "fd00::1"]

    def told(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("engine", 8100)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kinds = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in addresses]
        return [(kind, 1, 6, "", (one, port)) for kind, one in zip(kinds, addresses, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", told)

    async def look() -> dict[str, bool]:
        registry._names._asked.clear()
        await registry.refresh()
        return listed(registry)

    registry = ReplicaRegistry(Server, fixed=[ReplicaSpec(url="http://engine:8100", cluster="near", each=True)])
    assert await look() == {"http://10.0.0.1:8100": True, "http://10.0.0.2:8100": True}
    assert {replica.spec.cluster for replica in registry.replicas} == {"near"} and not registry.replicas[0].spec.each
    addresses[:] = ["10.0.0.2", "10.0.0.3"]
    assert await look() == {
        "http://10.0.0.1:8100": False, "http://10.0.0.2:8100": True, "http://10.0.0.3:8100": True,
    }  # fmt: skip
    addresses.clear()
    assert (await look())["http://10.0.0.3:8100"]
    assert "the name engine of http://engine:8100 has no address now (Name or service not known)" in registry.problem
    addresses[:] = ["fd00::1"]
    assert (await look())["http://[fd00::1]:8100"] and registry.problem == ""
    registry.close()


def test_the_command_line_names_servers_in_three_ways(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    replica_arguments(parser)

    def given(*words: str) -> list[ReplicaSpec]:
        return fixed_replicas(parser, parser.parse_args(words))

    assert given("--servers", "http://a:1,http://b:1/") == [
        ReplicaSpec(url="http://a:1"),
        ReplicaSpec(url="http://b:1"),
    ]
    assert given("--each", "http://engine:8100") == [ReplicaSpec(url="http://engine:8100", each=True)]
    assert given("--members", "/x.json") == []
    for words, told in (
        ((), "no server is named: give --replicas FILE"),
        (("--servers", "a:1"), "--servers: 'a:1' is no address of a server; write http://host:8000"),
        (("--each", "https://a:1"), "--each: Value error, each: certificates are of names"),
    ):
        with pytest.raises(SystemExit):
            given(*words)
        assert told in capsys.readouterr().err
