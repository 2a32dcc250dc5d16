"""Without PyTorch the model language works, and says what `from_torch` needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amphw import frontend as fe


def test_nothing_imports_it_before_it_is_asked_for() -> None:
    program = "import sys, amphw.frontend; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_where_it_is_missing_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(fe.FrontendError, match=r"from_torch needs PyTorch: pip install 'amphw\[torch\]'$"):
        fe.from_torch(object())
