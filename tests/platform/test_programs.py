"""The supervisor configuration that is generated for the product."""

from __future__ import annotations

import configparser
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composer_web.core.queue.queues import QUEUES
from scripts.stack import environment, programs, valkey
from scripts.stack.errors import StackError
from scripts.stack.layout import Layout
from trainer.inference import choosing


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, so that the sockets stay inside (pytest's own may be too long for them)."""
    with tempfile.TemporaryDirectory(prefix="oc-") as name:
        yield Path(name)


ADDRESSES = environment.Addresses(
    host="127.0.0.1",
    port=8800,
    engine="embedded",
    vllm_urls="",
    inference_port=9000,
    valkey=valkey.Endpoint(port=9001, password="p"),
    mark="m",
)


def generated(data: Path, **changes: Any) -> tuple[configparser.RawConfigParser, Layout]:
    layout = Layout.open(data)
    addresses = replace(ADDRESSES, **changes)
    text = programs.configuration(layout, [*programs.services(layout), *programs.product(layout, addresses)])
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return parser, layout


def test_every_kind_of_work_has_one_program_that_restarts(folder: Path) -> None:
    parser, _ = generated(folder)
    product = parser["group:product"]["programs"].split(",")
    assert product == [
        "web",
        "worker-control",
        "worker-io",
        "worker-rollout",
        "worker-build",
        "worker-train",
        "beat",
        "inference",
    ]
    for name in [*product, *parser["group:services"]["programs"].split(",")]:
        assert parser[f"program:{name}"]["autorestart"] == "true"
    workers = [shlex.split(parser[f"program:{name}"]["command"]) for name in product if name.startswith("worker-")]
    queues = {queue for command in workers for queue in command[command.index("--queues") + 1].split(",")}
    assert queues == set(QUEUES)


def test_the_engine_decides_what_serves_inference(folder: Path) -> None:
    parser, _ = generated(folder)
    assert "trainer.inference.embedded.serving.server" in parser["program:inference"]["command"]
    parser, layout = generated(folder, engine="vllm", vllm_urls="http://a:8000,http://b:8000")
    command = shlex.split(parser["program:inference"]["command"])
    assert command[command.index("-m") + 1] == "trainer.inference.vllm.server"
    assert command[command.index("--replicas") + 1] == str(environment.replicas_file(layout, "vllm"))
    assert command[command.index("--port") + 1] == "9000"
    assert not any("embedded" in value for section in parser.values() for value in section.values())


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OPENCOMPOSER_INFERENCE_ENGINE": "sglang"}, "must be one of embedded, vllm, auto, found 'sglang'"),
        ({"OPENCOMPOSER_INFERENCE_ENGINE": "vllm"}, "needs OPENCOMPOSER_VLLM_URLS: no server is named"),
        ({"OPENCOMPOSER_ENGINES": "many"}, "OPENCOMPOSER_ENGINES must be a number from 1 to 64, found 'many'"),
        (
            {
                "OPENCOMPOSER_ENGINES": "2",
                "OPENCOMPOSER_INFERENCE_ENGINE": "vllm",
                "OPENCOMPOSER_VLLM_URLS": "http://gpu1:8000",
            },
            "OPENCOMPOSER_INFERENCE_ENGINE is 'vllm': unset one",
        ),
        (
            {"OPENCOMPOSER_INFERENCE_ENGINE": "vllm", "OPENCOMPOSER_VLLM_URLS": "gpu1:8000"},
            "OPENCOMPOSER_VLLM_URLS: 'gpu1:8000' is no address",
        ),
    ],
)
def test_a_wrong_engine_is_refused_with_the_setting(variables: dict[str, str], words: str) -> None:
    with pytest.raises(StackError, match=words):
        environment.engine_count(variables, environment.inference_engine(variables)[0])


@pytest.mark.parametrize(
    ("urls", "gpu", "engine", "reason"),
    [
        ("", True, "embedded", "names no vLLM server"),
        ("http://gpu1:8000,http://localhost:8000", False, "vllm", "other machines"),
        ("http://127.0.0.1:8000", True, "vllm", "which has a GPU"),
        ("http://127.0.0.1:8000", False, "embedded", "has no GPU"),
    ],
)
def test_the_engine_is_chosen_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, urls: str, gpu: bool, engine: str, reason: str
) -> None:
    monkeypatch.setattr(choosing, "has_gpu", lambda: gpu)
    found = choosing.choose_engine("auto", urls)
    assert found.engine == engine and reason in found.why
    assert choosing.choose_engine("vllm", "") == choosing.Chosen("vllm", "")


def test_auto_says_what_it_chose(capsys: pytest.CaptureFixture[str]) -> None:
    variables = {"OPENCOMPOSER_INFERENCE_ENGINE": "auto", "OPENCOMPOSER_VLLM_URLS": "http://gpu1:8000"}
    assert environment.inference_engine(variables) == ("vllm", "http://gpu1:8000")
    assert "inference engine: vllm, because" in capsys.readouterr().out


def test_guessing_ahead_is_a_setting_of_embedded_engines(folder: Path) -> None:
    parser, _ = generated(folder, speculate=environment.speculation({"OPENCOMPOSER_SPECULATE": "3"}, "embedded"))
    assert "--speculate 3" in parser["program:inference"]["command"]
    assert environment.speculation({}, "vllm") == 0
    with pytest.raises(StackError, match="from 0 to 8, found '9'"):
        environment.speculation({"OPENCOMPOSER_SPECULATE": "9"}, "embedded")
    with pytest.raises(StackError, match="is for embedded engines"):
        environment.speculation({"OPENCOMPOSER_SPECULATE": "3"}, "vllm")


def test_a_mirror_is_a_program_that_is_kept_alive(folder: Path) -> None:
    wanted = environment.mirrors({"OPENCOMPOSER_MIRRORS": "tensorboard=/a b/logs, mlflow=http://there:5000"})
    parser, _ = generated(folder, mirrors=wanted)
    command = shlex.split(parser["program:mirror-tensorboard"]["command"])
    assert command[-3:] == ["mirror", "tensorboard", "/a b/logs"]
    assert parser["program:mirror-mlflow"]["autorestart"] == "true"
    assert "mirror-mlflow" in parser["group:product"]["programs"].split(",")
    assert environment.mirrors({}) == ()


@pytest.mark.parametrize("text", ["mlflow", "mlflow=", "wandb=a,wandb=b"])
def test_a_wrong_mirror_is_refused_with_the_setting(text: str) -> None:
    with pytest.raises(StackError, match="OPENCOMPOSER_MIRRORS must be kind=where, each kind once"):
        environment.mirrors({"OPENCOMPOSER_MIRRORS": text})


def test_the_engine_is_told_to_every_process(folder: Path) -> None:
    engine, urls = environment.inference_engine(
        {"OPENCOMPOSER_INFERENCE_ENGINE": "vllm", "OPENCOMPOSER_VLLM_URLS": "http://a:8000/"}
    )
    told = environment.variables(Layout.open(folder), replace(ADDRESSES, engine=engine, vllm_urls=urls))
    assert told["OPENCOMPOSER_INFERENCE_ENGINE"] == "vllm" and told["OPENCOMPOSER_VLLM_URLS"] == "http://a:8000"


def test_services_start_first_and_stop_last(folder: Path) -> None:
    parser, _ = generated(folder)
    assert int(parser["group:services"]["priority"]) < int(parser["group:product"]["priority"])


def test_paths_with_spaces_and_percent_signs_survive(folder: Path) -> None:
    parser, layout = generated(folder / "a b%c")
    command = parser["program:valkey"]["command"].replace("%%", "%")
    assert shlex.split(command)[1] == str(layout.run / "valkey.conf")
    assert parser["program:web"]["stdout_logfile"].replace("%%", "%") == str(layout.logs / "web.log")


def test_the_control_socket_is_private_and_nothing_listens_on_the_network(folder: Path) -> None:
    parser, _ = generated(folder)
    assert parser["unix_http_server"]["chmod"] == "0600"
    assert "inet_http_server" not in parser


def test_a_url_can_be_typed_into_a_browser() -> None:
    def url(host: str) -> str:
        return environment.url({"OPENCOMPOSER_HOST": host, "OPENCOMPOSER_PORT": "80"})

    assert url("127.0.0.1") == url("0.0.0.0") == "http://127.0.0.1:80/"
    assert url("::1") == "http://[::1]:80/"
