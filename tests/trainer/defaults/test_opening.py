"""The count of an opening prompt equals that of the policy's own renderer, without loading it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of, system_prompt
from trainer.defaults.opening import opening_tokens
from trainer.policy import load_tokenizer

BASE = Path("policies/base")
INSTRUCTION = "Mend the function `add` in calc.py: its tests fail."
TOOLS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if loop.first and tools %}
{% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BASE, tmp_path / "policy"))


def test_it_counts_what_episodes_read(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(TOOLS)
    tokenizer = load_tokenizer(folder)
    messages = [{"role": "system", "content": system_prompt()}, {"role": "user", "content": INSTRUCTION}]
    ids = tokenizer.encode(
        tokenizer.apply_chat_template(
            messages, tools=schemas_of(get_profile("full")), add_generation_prompt=True, tokenize=False
        ),
        add_special_tokens=False,
    )
    assert opening_tokens(folder, INSTRUCTION, profile="full") == len(ids) > 1000


def test_a_folder_that_changed_is_read_again(folder: Path) -> None:
    before = opening_tokens(folder, INSTRUCTION, profile="full")
    (folder / "chat_template.jinja").write_text(TOOLS)
    assert before is not None and opening_tokens(folder, INSTRUCTION, profile="full") != before


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% for %}", "{{ messages[9].content.x }}"])
def test_a_template_that_fails_is_unknown_and_no_crash(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert opening_tokens(folder, INSTRUCTION, profile="full") is None


def test_a_folder_without_a_tokenizer_is_unknown(tmp_path: Path) -> None:
    assert opening_tokens(tmp_path, INSTRUCTION, profile="full") is None


def test_the_form_derives_without_torch() -> None:
    code = "import sys, trainer.defaults, trainer.defaults.opening; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
