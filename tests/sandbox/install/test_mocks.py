"""Services that tests talk to, replaced by kept libraries: suites that use them pass in sandboxes without network.

The libraries are the package index's own, so these ask the index that the machine's pip is configured with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import AsyncIterator

import pytest

from sandbox.backends.base import Backend, EnvSpec, Sandbox
from sandbox.install.installer import install
from sandbox.install.recipes.base import Installed
from sandbox.install.recipes.errors import Reason
from sandbox.install.recipes.python.recipe import PythonRecipe
from sandbox.install.recipes.services import local, table
from sandbox.install.tools import tools_layer
from sandbox.install.tree import lay_out
from sandbox.install.verify import LIMITS
from sandbox.network import Upstreams, discover, registry_only
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile
from sandbox.repositories.ownership import give_to_sandbox
from sandbox.tasks.environments import EnvironmentStore, Manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "shop"
version = "1.0"
dependencies = [{needs}]
"""
STORE = """import boto3


def kept(name, data):
    store = boto3.client("s3")
    store.create_bucket(Bucket="shop")
    store.put_object(Bucket="shop", Key=name, Body=data)
    return store.get_object(Bucket="shop", Key=name)["Body"].read()
"""
STORE_TESTS = """from shop import kept


def test_what_is_kept_comes_back():
    assert kept("a", b"bread") == b"bread"
"""
MAIL = """import smtplib


def send(text, port=2525):
    with smtplib.SMTP("localhost", port, timeout=10) as server:
        return server.sendmail("a@shop.example", ["b@shop.example"], text)
"""
MAIL_TESTS = """from shop import send


def test_mail_is_taken():
    assert send("Subject: bread\\n\\nready") == {}
"""
BASKETS = """from pymongo import MongoClient


def baskets():
    return MongoClient("mongodb://localhost:27017", serverSelectionTimeoutMS=500).shop.baskets
"""
BASKET_TESTS = """from shop import baskets


def test_a_basket_is_found():
    baskets().insert_one({"_id": 1, "what": "bread"})
    assert baskets().find_one({"what": "bread"})["_id"] == 1
"""
LATER = """from celery import Celery

app = Celery("shop", broker="amqp://guest@localhost:5672//")
app.conf.broker_connection_retry = False
app.conf.broker_transport_options = {"max_retries": 1}


@app.task
def bake(what):
    return what
"""
LATER_TESTS = """from shop import app, bake


def test_an_order_is_queued():
    assert bake.delay("bread").id
    with app.connection_for_read() as line:
        assert line.default_channel.queue_declare("celery", passive=True).message_count >= 1
"""
CACHE = """from pymemcache.client.base import Client


def remembered(what):
    line = Client(("localhost", 11211), connect_timeout=5, timeout=5)
    line.set("what", what, noreply=False)
    return line.get("what")
"""
CACHE_TESTS = """from shop import remembered


def test_the_cache_remembers():
    assert remembered(b"bread") == b"bread"
"""
LATEST = """import redis


def kept(what):
    line = redis.Redis("localhost", 6379, socket_timeout=5)
    line.rpush("all", what, "last")
    return line.lrange("all", 0, -1), line.eval("return redis.call('llen', KEYS[1])", 1, "all")
"""
LATEST_TESTS = """from shop import kept


def test_what_came_last():
    assert kept("bread") == ([b"bread", b"last"], 2)
"""
QUEUE_TESTS = """import socket


def test_the_log_is_there():
    try:
        socket.create_connection(("localhost", 9092), 5)
    except OSError as error:
        raise ConnectionError(f"kafka on localhost:9092: {error}") from None
"""


@pytest.fixture(scope="module")
def upstreams() -> Upstreams:
    found = discover()
    if not found.python:
        pytest.skip("no package index is configured on this machine")
    return found


def shop(module: str, tests: str, needs: str = "") -> Checkout:
    wanted = f'"{needs}"' if needs else ""
    files = {"pyproject.toml": PROJECT.format(needs=wanted), "shop.py": module, "tests/test_shop.py": tests}
    return Checkout("shop", "1.0", {path: TreeFile(text.encode()) for path, text in files.items()})


async def test_a_mock_is_part_of_the_environment(backend, environments, upstreams):
    """A store of objects: the suite passes in three fresh sandboxes without network, and in a fourth."""
    log: list[str] = []
    found = shop(STORE, STORE_TESTS, "boto3")
    record = await install(environments, found, backend=backend, upstreams=upstreams, log=log.append)
    assert record.built is not None, (record.problem, log[-40:])
    assert any("service s3 is replaced by a mock" in line for line in log)
    assert record.evidence.repeatable and len(record.built.tests) == 1
    async with await backend.start(environments.spec(record.built.environment)) as box:
        shown = await box.exec("python -m pytest -q tests", timeout=120)
        assert b"1 passed" in shown.output


@contextlib.asynccontextmanager
async def installed(
    backend: Backend, environments: EnvironmentStore, upstreams: Upstreams, found: Checkout, log: list[str]
) -> AsyncIterator[tuple[Sandbox, Installed]]:
    """The installing sandbox after the recipe's first attempt; what failed without the service is in `log`."""
    tree = environments.working_directory()
    lay_out(tree, found.files)
    give_to_sandbox(tree)
    home = environments.preview(tree, Manifest(name="x", version="0"))
    spec = EnvSpec(layers=(*home.layers, tools_layer(environments)), env=home.env)
    net = registry_only(PythonRecipe.registries, upstreams, lambda record: None)
    async with await backend.start(spec, limits=LIMITS, net=net) as box:
        yield box, await PythonRecipe().install(box, found, attempt=1, log=log.append)


@pytest.mark.parametrize(
    ("needs", "module", "tests", "said"),
    [
        ("", MAIL, MAIL_TESTS, "service smtp is replaced by a mock: aiosmtpd"),
        ("pymongo<5", BASKETS, BASKET_TESTS, "service mongodb is replaced by a mock: mongomock"),
        ("celery", LATER, LATER_TESTS, "service celery-broker is replaced by a mock"),
        pytest.param(
            "pymemcache", CACHE, CACHE_TESTS, "system packages, by the words of the error: memcached",
            marks=pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine"),
        ),
    ],
    ids=["smtp", "mongodb", "celery-broker", "memcached"],
)  # fmt: skip
async def test_a_service_stands_in(backend, environments, upstreams, needs, module, tests, said):
    """Without it the suite fails; with it, it passes, also when everything was stopped in between."""
    log: list[str] = []
    async with installed(backend, environments, upstreams, shop(module, tests, needs), log) as (box, made):
        assert made.problem is None and made.run is not None, "\n".join([*log[-60:], str(made.problem)])
        assert any(said in line for line in log), log[-40:]
        assert any("services, by the words of the errors" in line for line in log)
        assert [case.status for case in made.run.cases.values()] == ["passed"]
        await local.stop(box, log.append)
        shown = await box.exec("python -m pytest -q tests", timeout=120, env=made.env)
        assert b"1 passed" in shown.output, shown.output[-2000:]


async def test_a_cache_that_no_program_can_be_had_for_is_a_python_one(backend, environments, upstreams, monkeypatch):
    """fakeredis stands in where neither this machine nor a PyPI package has Redis; it starts again when it was stopped."""
    redis = next(one for one in table.SERVICES if one.name == "redis")
    assert redis.server is not None
    nowhere = dataclasses.replace(redis.server, program="no-such-redis", package="")
    lone = dataclasses.replace(redis, server=nowhere)
    monkeypatch.setattr(table, "SERVICES", tuple(lone if one is redis else one for one in table.SERVICES))
    log: list[str] = []
    async with installed(backend, environments, upstreams, shop(LATEST, LATEST_TESTS, "redis"), log) as (box, made):
        assert made.problem is None and made.run is not None, "\n".join([*log[-60:], str(made.problem)])
        assert any("service redis is replaced by a mock: fakeredis[lua]" in line for line in log), log[-40:]
        assert [case.status for case in made.run.cases.values()] == ["passed"]
        await local.stop(box, log.append)
        gone = await box.exec("(exec 3<>/dev/tcp/127.0.0.1/6379) 2>/dev/null", timeout=30)
        assert gone.exit_code != 0
        shown = await box.exec("python -m pytest -q tests", timeout=120, env=made.env)
        assert b"1 passed" in shown.output, shown.output[-2000:]


async def test_a_service_that_cannot_be_had_is_named_with_what_to_do(backend, environments, upstreams):
    log: list[str] = []
    async with installed(backend, environments, upstreams, shop("A = 1\n", QUEUE_TESTS), log) as (_, made):
        assert made.problem is not None and made.problem.reason == Reason.SERVICE, log[-40:]
        assert "kafka (not started here" in str(made.problem)
        assert "Mark the tests that need it" in str(made.problem)
