"""bfloat16 is chosen only where every core has instructions for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.defaults.hardware import cpu_has_bfloat16

X86 = "processor\t: 0\nflags\t\t: fpu avx2 {}\n\nprocessor\t: 1\nflags\t\t: fpu avx2 {}\n"


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (X86.format("avx512_bf16", "avx512_bf16 amx_bf16"), True),
        (X86.format("", ""), False),
        (X86.format("avx512_bf16", ""), False),
        ("Features\t: fp asimd bf16\n", True),
        ("", False),
    ],
)
def test_flags(tmp_path: Path, text: str, has: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_has_bfloat16(tmp_path / "cpuinfo") is has
