"""The README is true: its Python runs as it stands, in order, in an empty folder."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.model
def test_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    """Every Python block runs after those before it, and the examples find what they are meant to find."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", url)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec", dont_inherit=True), names)  # noqa: S102  the README is ours
        if "async def main" in block:
            asyncio.run(names["main"]())
    printed = capsys.readouterr().out
    first, *_ = printed.splitlines()
    assert "peanuts" in first
    assert "cello" in printed
    assert "vegetarian" not in first
    assert "1 Book Avenida and the 9:15 train?" in printed
    assert "Book Pensão Londres and the 9:15 train?" in printed
