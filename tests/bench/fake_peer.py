"""A peer without a framework: keeps the protocol, does nothing, and misbehaves where it is told to.

Run as an interpreter: `fake FOLDER --probe` or `fake FOLDER SPEC.json`. FAKE_PEER, a JSON object in the
environment, says how it behaves: rates by form, forms that fail, runs after which a process of that many
threads or processes dies, and peers that are absent. fails_first: forms that fail where a process prepares
nothing before them. fails_beside: forms that fail in the first of several processes. untrained: the number of
threads with which training dies.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    how = json.loads(os.environ.get("FAKE_PEER", "{}"))
    if sys.argv[2] == "--probe":
        absent = how.get("absent", {"dynet": "not here"})
        versions = {peer: "0" for peer in ("torch", "pyg", "dynet") if peer not in absent}
        say({"python": "3", "versions": versions, "absent": absent, "compiler": how.get("compiler", "g++")})
        return
    with open(sys.argv[2], encoding="utf-8") as file:
        spec = json.load(file)
    if how.get("broken"):
        print("ImportError: no torch", file=sys.stderr)
        sys.exit(3)
    say({"ok": {"version": "0"}})
    rate, runs, prepared = 0.0, 0, False
    several = spec["share"][1] > 1
    for line in sys.stdin:
        request = json.loads(line)
        form = request.get("form")
        if request["do"] == "prepare":
            fails = form in how.get("failing", [])
            fails |= form in how.get("fails_first", []) and not prepared
            fails |= form in how.get("fails_beside", []) and several and spec["share"][0] == 0
            prepared = True
            if fails:
                say({"error": f"cannot build {form}"})
                continue
            rate = how.get("rates", {}).get(form, 100.0) * spec["threads"]
            say({"ok": {}})
        elif request["do"] == "run":
            runs += 1
            if how.get("dies_after") is not None and several and runs > how["dies_after"]:
                print("Segmentation fault", file=sys.stderr)
                sys.exit(139)
            say({"ok": {"count": rate * request["seconds"], "seconds": request["seconds"], "cpu": 0.0}})
        elif request["do"] == "train":
            if how.get("untrained") == spec["threads"]:
                sys.exit(139)
            history = [{"epoch": e, "seconds": float(e), "metric": 0.4 * e} for e in (1, 2)]
            for each in history:
                say({"progress": each})
            say({"ok": {"reached": history[-1], "history": history}})


def say(message: dict) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
