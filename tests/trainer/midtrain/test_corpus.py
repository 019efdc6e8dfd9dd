"""Corpora: reading four kinds of source, cleaning them, keeping their origin, and mid-training on the result."""

from __future__ import annotations

import json
import subprocess

import pyarrow
import pytest
from pyarrow import parquet

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, TaskSpec
from tests.trainer.stages.memory import BASE_POLICY, MemorySink
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, OptimizerConfig
from trainer.errors import StageError
from trainer.learning.metrics import describe
from trainer.midtrain.corpus.clean import Cleaned, clean
from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import SourceUnreadable, read_source
from trainer.midtrain.corpus.store import documents, prepare, provenance
from trainer.midtrain.heldout import held_out
from trainer.midtrain.stage import run_midtrain
from trainer.policy.round_trip import TemplateNotExact
from trainer.sft.expert_episodes import EpisodeTurn, ExpertEpisode
from trainer.sft.templates import check_round_trip
from trainer.toy.preset import toy_midtrain


def text(name: str) -> str:
    return f"def {name}(values):\n    '''Return the {name} of values.'''\n" + "".join(
        f"    {name}_{n} = values[{n}] + {n * 7}\n" for n in range(12)
    )


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text(text("alpha"))
    (root / "b.go").write_text("package main\n")
    (root / "image.png").write_bytes(b"\x89PNG")
    (root / "bad.py").write_bytes(b"\xff\xfe")
    (root / "link.py").symlink_to("/etc/hostname")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "c.js").write_text("x")
    return root


def test_folders_give_text_of_known_languages(folder) -> None:
    assert [(d.path, d.language, d.source) for d in read_source(folder)] == [
        ("b.go", "go", "project"), ("src/a.py", "python", "project"),
    ]  # fmt: skip


def test_git_repositories_are_read_at_their_commit(folder) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    (folder / "LICENSE").write_text("MIT License\n\ntext")
    git("init", "-q")
    git("add", "src", "b.go", "LICENSE", "link.py")
    git("commit", "-q", "-m", "one")
    (folder / "src" / "a.py").write_text("changed = 1\n")
    read = {d.path: d for d in read_source(folder)}
    assert set(read) == {"b.go", "src/a.py"}
    assert read["src/a.py"].text == text("alpha"), "the commit, not the work tree"
    assert (read["b.go"].revision, read["b.go"].licence) == (git("rev-parse", "HEAD"), "MIT License")


def test_jsonl_names_the_line_at_fault(tmp_path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"text": "x = 1", "path": "a.py", "license": "mit"}, {"content": "package a", "language": "Go"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [(d.language, d.licence) for d in read_source(file)] == [("python", "mit"), ("go", "")]
    file.write_text(file.read_text() + '{"body": 1}\n')
    with pytest.raises(SourceUnreadable, match=r"rows\.jsonl, row 3: no text under text, content, code"):
        list(read_source(file))


def test_parquet_is_read_by_rows(tmp_path) -> None:
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"content": ["x = 1", "y = 2"], "path": ["a.py", "b.rs"]}), file)
    assert [(d.text, d.language) for d in read_source(file)] == [("x = 1", "python"), ("y = 2", "rust")]
    file.write_bytes(b"PAR1 not really")
    with pytest.raises(SourceUnreadable, match="not a readable Parquet file"):
        list(read_source(file))


def test_what_is_no_source_is_named(tmp_path) -> None:
    with pytest.raises(SourceUnreadable, match="is no folder, git repository"):
        read_source(tmp_path / "nothing.csv")


def document(body: str, path: str = "a.py") -> Document:
    return Document(text=body, path=path, source="s", language="python")


def test_copies_near_copies_and_tasks_are_left_out() -> None:
    task = generate(3, "held-out")
    (module, gold), *_ = task.gold.items()
    report = Cleaned()
    given = [
        document(text("alpha"), "first.py"),
        document(text("alpha").replace("    ", "\t"), "copy.py"),
        document(text("alpha") + "done = True\n", "near.py"),
        document(f"# some notes\n{gold}\nother = 1\n", "leak.py"),
        document(text("omega"), "other.py"),
    ]
    kept = [d.path for d in clean(given, against=[task], report=report)]
    assert kept == ["first.py", "other.py"]
    assert report.dropped == {"duplicate": 1, "near-duplicate": 1, "contaminated": 1}
    assert report.examples["contaminated"] == ["s:leak.py"]


def real(n: int, hidden: str, *, head: str = "") -> TaskSpec:
    """A task over a checkout that is built: a bug laid over it, and a hidden test."""
    bug = {"src/sums.py": head + text("sums").replace("values[3]", f"values[{n + 20}]")}
    return TaskSpec(
        id=f"t{n}", source="mutation", instruction=f"Mend the sums of number {n}.",
        environment=BuiltEnvironment(digest="d" * 64, overrides=bug), gold={"src/sums.py": head + text("sums")},
        verifier=PytestVerifier(
            test_files={f"tests/test_{n}.py": head + hidden}, fail_to_pass=(f"tests/test_{n}.py::test_it",)
        ),
    )  # fmt: skip


def test_hidden_tests_and_planted_bugs_of_real_tasks_are_guarded() -> None:
    hidden = "def test_it():\n    assert sums.total([1, 2, 3], start=7) == 13 + offset(4)\n"
    tasks = [real(n, hidden.replace("13", str(n + 50))) for n in range(2)]
    planted = "\n".join(text("sums").replace("values[3]", "values[20]").splitlines()[3:8])
    given = [
        document(f"# notes\n{hidden.replace('13', '51')}", "test.py"),
        document(f"x = 1\n{planted}\n", "bug.py"),
        document(text("omega"), "other.py"),
    ]
    report = Cleaned()
    assert [d.path for d in clean(given, against=tasks, report=report)] == ["other.py"]
    assert report.dropped == {"contaminated": 2}


def test_the_head_that_files_share_guards_nothing_and_a_file_that_tasks_share_does() -> None:
    head = "# Copyright the authors of sums. All rights are reserved by law in every country.\n"
    tasks = [real(n, f"def test_{n}():\n    assert total_{n}({n}) == {n + 1}\n", head=head) for n in range(8)]
    given = [document(head + text("omega"), "licensed.py"), document("x = 2\n" + text("sums"), "answer.py")]
    report = Cleaned()
    kept = [d.path for d in clean(given, against=tasks, report=report)]
    assert kept == ["licensed.py"], "eight tasks have the same oracle: it is no template for that"


def test_a_corpus_says_where_it_came_from(folder, tmp_path) -> None:
    made = prepare(tmp_path / "corpus", [folder], against=[generate(0, "held-out")])
    assert (made.documents, made.languages, made.guarded_tasks) == (2, {"go": 1, "python": 1}, 1)
    assert made.sources[0].kind == "folder"
    assert provenance(tmp_path / "corpus") == made
    assert [d.path for d in documents(tmp_path / "corpus")] == ["b.go", "src/a.py"]
    changed = (tmp_path / "corpus" / "documents.jsonl").read_text().replace("alpha", "gamma")
    (tmp_path / "corpus" / "documents.jsonl").write_text(changed)
    with pytest.raises(SourceUnreadable, match="prepare the corpus again"):
        documents(tmp_path / "corpus")
    with pytest.raises(SourceUnreadable, match="holds no complete corpus"):
        provenance(tmp_path)


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_mid_training_on_a_corpus_measures_languages_and_a_codebase_and_grows_the_context(tmp_path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    words = ("red", "blue", "green", "pink", "grey", "gold", "cyan", "teal")
    for n in range(64):
        body = "\n".join(f"{words[(n + i) % 8]}_{n}_{i} = {words[(n * i) % 8]}({n * i})" for i in range(12))
        (source / f"m{n}.{'py' if n % 2 else 'go'}").write_text(body)
    (tmp_path / "corpora" / "mine").mkdir(parents=True)
    (tmp_path / "corpora" / "mine" / "x.py").write_text(text("beta"))
    prepare(tmp_path / "corpora" / "all", [source])
    sink = MemorySink()
    config = toy_midtrain(
        corpus="all", codebase="mine", steps=3, batch_tokens=512, seq_len=128, long_context_share=0.34, long_context_seq_len=1200,
        rope="yarn", optimizer=OptimizerConfig(name="muon", learning_rate=1e-3, warmup_steps=0),
        checkpoint=CheckpointConfig(every_steps=2, keep=2),
    )  # fmt: skip

    def run(root):
        return run_midtrain(
            policy_dir=BASE_POLICY, config=config, seed=0, sink=sink, checkpoints=CheckpointStore(root, keep=2),
            corpora=tmp_path / "corpora",
        )  # fmt: skip

    result = run(tmp_path / "checkpoints")
    assert result.outcome == "completed" and result.checkpoint is not None
    assert {"loss/language/python", "loss/language/go", "loss/codebase", "loss/heldout"} <= set(sink.values[3])
    for name in sink.values[3]:
        describe(name)
    longer = policies.load(result.checkpoint / "policy").model.config
    assert (longer.max_position_embeddings, longer.rope_parameters["rope_type"]) == (1200, "yarn")
    assert (
        policies.load(result.checkpoint.parent / "step-000002" / "policy").model.config.max_position_embeddings == 1024
    )
    with pytest.raises(StageError, match="holds no complete corpus"):
        run_midtrain(
            policy_dir=BASE_POLICY, config=config.model_copy(update={"corpus": "none"}), seed=0, sink=sink,
            checkpoints=CheckpointStore(tmp_path / "other", keep=1), corpora=tmp_path / "corpora",
        )  # fmt: skip


# -- templates --------------------------------------------------------------------------------------------------------

CHATML = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') -}}
{%- for c in m.tool_calls or [] -%}{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' -}}
{{- (c.function.arguments | tojson) + '}\\n</tool_call>' -}}{%- endfor -%}{{- '<|im_end|>\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
EPISODE = ExpertEpisode(
    task_id="t",
    bundle_hash="0" * 64,
    profile="toy",
    messages=({"role": "user", "content": "`f(1)` is 2 <|end|>"},),
    turns=tuple(
        EpisodeTurn(
            calls=(ToolCall(id="call_0", name=name, arguments=arguments),),
            results=(ToolResult(call_id="call_0", output="a.py:1:def f(x):"),),
        )
        for name, arguments in (("grep", {"pattern": "def f"}), ("read_file", {"path": "a.py"}), ("finish", {}))
    ),
)


def renderer(template: str | None = None) -> policies.ChatRenderer:
    tokenizer = policies.load_tokenizer(BASE_POLICY)
    if template:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        tokenizer.chat_template = template
    return policies.make_renderer(tokenizer)


def test_held_out_rows_are_as_many_as_asked_for() -> None:
    tokenizer = policies.load_tokenizer(BASE_POLICY)
    documents = [document(f"value_{n} = {n}\n" * 40, f"{n}.py") for n in range(6)]

    def tokens(most: int) -> int:
        rows = held_out(tokenizer, documents, length=64, max_tokens=most, codebase=None).rows["loss/language/python"]
        return sum(len(row.ids) for row in rows)

    assert 100 <= tokens(100) < 164 < tokens(400) < 464 < tokens(10**6) == tokens(10**7)


def test_exact_templates_pass() -> None:
    check_round_trip(renderer(), EPISODE)
    check_round_trip(renderer(CHATML), EPISODE)
    check_round_trip(renderer(CHATML.replace('\'<tool_call>\\n{"name": "\'', '\'<tool_call>{"name":"\'')), EPISODE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        # The first call of every turn but the last is forgotten, as templates that drop old thinking or calls do.
        (
            CHATML.replace("for c in m.tool_calls or []", "for c in (m.tool_calls or [] if loop.last else [])"),
            "not token-exact",
        ),
    ],
)
def test_templates_that_do_not_round_trip_are_refused_by_name(template, message) -> None:
    with pytest.raises(TemplateNotExact, match=f"chat template of .*base.* is {message}"):
        check_round_trip(renderer(template), EPISODE)
