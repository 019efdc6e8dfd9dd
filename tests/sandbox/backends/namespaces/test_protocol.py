"""Frames: what is sent arrives, whatever the pieces; what is no frame ends the sandbox."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import SandboxLost
from sandbox.backends.namespaces.channel import Channel
from sandbox.backends.namespaces.inside import protocol

headers = st.dictionaries(
    st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=20), max_size=5
)


@given(frames=st.lists(st.tuples(headers, st.binary(max_size=200)), max_size=5), sizes=st.lists(st.integers(1, 50)))
def test_any_cut_gives_the_same_frames(frames: list[tuple[dict, bytes]], sizes: list[int]) -> None:
    stream = b"".join(protocol.encode(header, blob) for header, blob in frames)
    decoder, found = protocol.Decoder(), []
    for size in sizes:
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    assert found + decoder.feed(stream) == frames


@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_give_frames_or_a_protocol_error(data: bytes) -> None:
    try:
        for header, blob in protocol.Decoder().feed(data):
            assert isinstance(header, dict) and isinstance(blob, bytes)
    except protocol.ProtocolError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        protocol.PREFIX.pack(protocol.MAX_HEADER_BYTES + 1, 0),
        protocol.PREFIX.pack(2, protocol.MAX_BLOB_BYTES + 1),
        protocol.PREFIX.pack(3, 0) + b"[1]",
        protocol.PREFIX.pack(3, 0) + b"{..",
        protocol.PREFIX.pack(200_000, 0) + b"[" * 200_000,
    ],
    ids=["header", "blob", "list", "syntax", "depth"],
)
def test_refused(data: bytes) -> None:
    with pytest.raises(protocol.ProtocolError):
        protocol.Decoder().feed(data)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff" * 64,
        protocol.encode({"id": 99}),
        protocol.encode({"id": "1"}),
        protocol.encode({"id": True}),
        b"",
    ],
    ids=["junk", "number", "text", "boolean", "end"],
)
async def test_a_peer_that_breaks_the_protocol_is_given_up(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open("test", ours)
    request = asyncio.create_task(channel.request({"op": "read"}, deadline=10))
    await asyncio.sleep(0)
    theirs.sendall(answer)
    if not answer:
        theirs.close()
    with pytest.raises(SandboxLost):
        await request
    with pytest.raises(SandboxLost):
        await channel.request({"op": "read"}, deadline=10)
    theirs.close()


async def test_silence_ends_at_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open("test", ours)
    with pytest.raises(SandboxLost, match="no answer"):
        await channel.request({"op": "read"}, deadline=0.05)
    theirs.close()


async def test_an_answer_counts_although_we_were_held_up_past_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open("test", ours)
    request = asyncio.create_task(channel.request({"op": "read"}, deadline=0.05))
    await asyncio.sleep(0)
    theirs.sendall(protocol.encode({"id": 1}, b"here"))
    threading.Event().wait(0.2)  # the event loop serves nobody meanwhile
    assert (await request)[1] == b"here"
    theirs.close()


async def test_answers_come_in_any_order() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open("test", ours)
    requests = [asyncio.create_task(channel.request({"n": n}, deadline=10)) for n in range(3)]
    await asyncio.sleep(0)
    for number in (3, 1, 2):
        theirs.sendall(protocol.encode({"id": number}, b"%d" % number))
    assert [blob for _, blob in await asyncio.gather(*requests)] == [b"1", b"2", b"3"]
    theirs.close()
    await asyncio.wait_for(channel.ended, 10)
