"""Names that come to mean other addresses: what was judged is what is connected to, by every client that we have."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.generators.building.instructions import Evidence
from sandbox.generators.building.rewriting import RewriteFailed, Rewriter
from sandbox.grading.audit.judge.client import Endpoint as JudgeEndpoint
from sandbox.grading.audit.judge.client import Judge, JudgeError
from sandbox.network import guard as guarded
from sandbox.network.guard import AsyncTransport, Guard, Refused, Transport, Unknown
from sandbox.repositories import git
from tests.sandbox.grading.audit.test_judge import SESSION
from trainer.inference.chat import ChatClient, Endpoint
from trainer.inference.contract import InferenceRefused

PUBLIC, LOOPBACK = "93.184.215.14", "127.0.0.1"


class Resolver:
    """Answers for one name, with the next of its addresses each time and then with the last; all else as ever."""

    def __init__(self, name: str, *answers: str) -> None:
        self.name, self.answers, self.asked = name, list(answers), 0
        self._system = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *rest: Any, **more: Any) -> list[Any]:
        if (host.decode() if isinstance(host, bytes) else host) != self.name:
            return self._system(host, port, *rest, **more)
        self.asked += 1
        address = self.answers[min(self.asked, len(self.answers)) - 1]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]


class Inside:
    """A server on one of this machine's own addresses that notes who asks."""

    def __init__(
        self, address: str, port: int = 0, context: ssl.SSLContext | None = None, answer: bytes = b"{}"
    ) -> None:
        self.hosts: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.hosts.append(self.headers["Host"])
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                """Tests read no log of it."""

        self.server = ThreadingHTTPServer((address, port), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def inside(address: str = LOOPBACK, port: int = 0, **more: Any) -> Iterator[Inside]:
    made = Inside(address, port, **more)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def rebinding(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Public when it is judged first, the loopback ever after."""
    made = Resolver("rebind.example", PUBLIC, LOOPBACK)
    monkeypatch.setattr(socket, "getaddrinfo", made)
    return made


async def test_an_endpoint_that_answers_otherwise_later_is_not_asked(rebinding: Resolver) -> None:
    with inside() as server:
        url = f"http://rebind.example:{server.port}/v1"
        assert Guard().addresses("rebind.example", server.port) == (PUBLIC,)
        async with ChatClient(Endpoint(url=url, model="m", guard=Guard())) as client:
            with pytest.raises(InferenceRefused, match=r"private address 127\.0\.0\.1"):
                await client.ask([], [], max_tokens=1, temperature=0.0, seconds=20.0)
    assert server.hosts == [] and rebinding.asked == 2


def test_a_judge_that_answers_otherwise_later_is_not_asked(rebinding: Resolver) -> None:
    with inside() as server:
        url = f"http://rebind.example:{server.port}/v1"
        assert Guard().addresses("rebind.example", server.port) == (PUBLIC,)
        with pytest.raises(JudgeError, match=r"private address 127\.0\.0\.1"):
            Judge(JudgeEndpoint(url, "m", guard=Guard())).opinion(SESSION)
    assert server.hosts == []


async def test_a_rewriter_that_answers_otherwise_later_is_not_asked(rebinding: Resolver) -> None:
    with inside() as server:
        url = f"http://rebind.example:{server.port}/v1"
        assert Guard().addresses("rebind.example", server.port) == (PUBLIC,)
        with pytest.raises(RewriteFailed, match=r"private address 127\.0\.0\.1"):
            await Rewriter(url, "m", guard=Guard())("Do it.", Evidence(package="shop"))
    assert server.hosts == []


def test_git_is_not_asked_where_a_name_moved_to(rebinding: Resolver) -> None:
    """Judged again when it is fetched: what was fine when somebody typed it is not any more."""
    with inside() as server:
        url = f"https://rebind.example:{server.port}/owner/name"
        assert git.check_url(url) == url
        with pytest.raises(PackageError, match=r"private address 127\.0\.0\.1"):
            git.fetch(url)
    assert server.hosts == []


def test_git_connects_to_what_was_judged_and_looks_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the system, `localhost` is 127.0.0.1; our look-up says 127.0.0.2 first. Git has to go where our look-up said."""
    made = Resolver("localhost", "127.0.0.2", LOOPBACK)
    monkeypatch.setattr(socket, "getaddrinfo", made)
    # In this order: a port that is free on the loopback is free on 127.0.0.2, which nobody else uses.
    with inside(LOOPBACK) as other, inside("127.0.0.2", other.port) as judged:
        place = f"localhost:{judged.port}"
        with pytest.raises(PackageError):  # neither is a git server
            git.fetch(f"http://{place}/owner/name", guard=Guard(frozenset({place})))
    assert set(judged.hosts) == {place}, "the request says the name"
    assert other.hosts == [] and made.asked == 1


def test_git_follows_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    with inside() as target:

        class Elsewhere(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{target.port}{self.path}")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Tests read no log of it."""

        server = ThreadingHTTPServer((LOOPBACK, 0), Elsewhere)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(PackageError):
            git.fetch(f"http://{place}/owner/name", guard=Guard(frozenset({place})))
        server.shutdown()
        server.server_close()
    assert target.hosts == []


def test_an_old_git_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not heed where it has to connect to."""

    def old(*arguments: Any, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout="git version 2.36.9\n")

    git.check_version.cache_clear()
    monkeypatch.setattr(git.subprocess, "run", old)
    with pytest.raises(PackageUnavailable, match=r"2\.37 or newer"):
        git.fetch("http://127.0.0.1:9/x", guard=Guard(frozenset({"127.0.0.1"})))
    git.check_version.cache_clear()


@pytest.mark.parametrize(
    "host", ["a..b\\@127.0.0.1", "ex%61mple.org", "example.org.", "exämple.org", "a_b.org", "[::1%25lo]", "x:99999"]
)
def test_hosts_that_two_parsers_may_read_otherwise_are_none(host: str) -> None:
    with pytest.raises(PackageError):
        git.check_url(f"https://{host}/owner/name")


def certified(folder: Path, name: str) -> ssl.SSLContext:
    """A server's context with a certificate of its own for `name`, which lies in `name`.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / f"{name}.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.mark.parametrize("name", ["named.example", "other.example"])
def test_tls_is_checked_against_the_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = certified(tmp_path, name)
    trust = ssl.create_default_context(cafile=str(tmp_path / f"{name}.pem"))
    monkeypatch.setattr(guarded, "trust_context", lambda: trust)
    monkeypatch.setattr(socket, "getaddrinfo", Resolver("named.example", LOOPBACK))
    transport = Transport(Guard(frozenset({"named.example"})))
    with inside(context=served) as server, httpx.Client(transport=transport) as client:
        if name == "named.example":
            assert client.get(f"https://named.example:{server.port}/").status_code == 200
            assert server.hosts == [f"named.example:{server.port}"]
        else:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                client.get(f"https://named.example:{server.port}/")
            assert server.hosts == []


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ever with names of several addresses: the first may be down."""

    with inside() as server:
        monkeypatch.setattr(Guard, "addresses", lambda *_: ("127.0.0.3", LOOPBACK))
        async with httpx.AsyncClient(transport=AsyncTransport(Guard())) as client:
            assert (await client.get(f"http://two.example:{server.port}/")).status_code == 200
        with httpx.Client(transport=Transport(Guard())) as plain:
            assert plain.get(f"http://two.example:{server.port}/").status_code == 200


async def test_a_look_up_that_hangs_ends_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def hang(*_: Any) -> tuple[str, ...]:
        gate.wait(30.0)
        return ()

    monkeypatch.setattr(Guard, "addresses", hang)
    began = time.monotonic()
    async with httpx.AsyncClient(transport=AsyncTransport(Guard()), timeout=0.2) as client:
        with pytest.raises(httpx.ConnectTimeout):
            await client.get("http://slow.example/")
    gate.set()
    assert time.monotonic() - began < 10.0


def test_what_is_refused_says_why_and_what_to_do() -> None:
    inner = Guard.of(" A.example , b.example:80,", "OPENCOMPOSER_X_HOSTS")
    assert inner.names("a.EXAMPLE", 1) and inner.names("b.example", 80) and not inner.names("b.example", 81)
    with pytest.raises(Refused, match=r"private address 127\.0\.0\.1.*OPENCOMPOSER_X_HOSTS=127\.0\.0\.1:80"):
        inner.addresses("127.0.0.1", 80)
    with pytest.raises(Refused, match="where nothing of ours may go"):
        Guard(frozenset({"169.254.169.254"})).addresses("169.254.169.254", 80)
    with pytest.raises(Unknown):
        inner.addresses("a" * 80 + ".example", 80)


@given(st.ip_addresses())
def test_only_global_addresses_pass_without_being_named(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if guarded.allowed(str(address), private=False):
        assert address.is_global and guarded.allowed(str(address), private=True)
