"""How long the report of a logged run takes to open, with 100,000 messages to walk through.

    python benchmarks/walk_page.py

A Tree-LSTM is trained with `--log` until the report shows as many messages as it keeps; Chromium opens the
report wide and narrow, light and dark. A time is from the request until the page is loaded, with the script
run and the first instance drawn. Bars: 2 seconds each, and a file of 10 MB.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import RESULTS, save

ROOT = Path(__file__).resolve().parents[1]
SECONDS, MEGABYTES, MESSAGES = 2.0, 10.0, 100_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--instances", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=RESULTS / "walk-page.json")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.browser import Browser

    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        command = ["train", "tree-lstm", "--log", "--out", str(out), "--set", "epochs=1"]
        command += [f"--set=train_instances={args.instances}", "--set=valid_instances=100"]
        subprocess.run([sys.executable, "-m", "amphw.cli", *command], check=True, capture_output=True)
        page = out / "report.html"
        text = page.read_text(encoding="utf-8")
        found = re.search(r"of the log, with ([\d,]+) messages", text)
        assert found is not None
        messages, size = int(found[1].replace(",", "")), page.stat().st_size / 1e6
        times: dict[str, list[float]] = {}
        browser = Browser(Path(name) / "profile")
        try:
            for _ in range(args.rounds):
                for width in (1280, 400):
                    for dark in (False, True):
                        browser.show(page, width, dark)
                        steps = browser.evaluate(
                            "document.querySelectorAll('#walk-chart rect[data-step]').length"
                        )
                        assert steps > 0
                        took = browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
                        times.setdefault(f"{width}, {'dark' if dark else 'light'}", []).append(took / 1e3)
        finally:
            browser.close()
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(f"{messages:,} messages, {size:.2f} MB; seconds: {medians}")
    missed = [name for name, each in medians.items() if each >= SECONDS]
    missed += ["size"] * (size > MEGABYTES) + ["messages"] * (messages < MESSAGES)
    save(
        {"messages": messages, "megabytes": size, "seconds": times, "medians": medians, "missed": missed},
        args.json,
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
