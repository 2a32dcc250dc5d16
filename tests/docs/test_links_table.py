"""The table of links in docs/rtl-boards.md is that of its record."""

from __future__ import annotations

import json

from benchmarks.rtl_links import OVER_USB, RECORD, table
from tests.docs.test_commands import ROOT


def test_the_table_of_links_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "rtl-boards.md").read_text(encoding="utf-8")
    usb = json.loads(OVER_USB.read_text(encoding="utf-8"))
    assert table(record, usb) in page
    assert usb["keys"] == record["keys"] and usb["sequences"] == record["sequences"]
    assert record["details"]["measured"]["words_again"] == record["details"]["100us"]["words_again"] == 0
