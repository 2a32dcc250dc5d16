"""Without PyTorch the model language works, and says what `from_torch` and `from_export` need."""

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
    for name in ("from_torch", "from_export"):
        with pytest.raises(fe.FrontendError, match=rf"{name} needs PyTorch: pip install 'amphw\[torch\]'$"):
            getattr(fe, name)(object())
