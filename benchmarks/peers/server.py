"""A peer's process: builds a form of a workload, and runs it when told to.

    python benchmarks/peers --probe          what there is here, as JSON
    python benchmarks/peers SPEC.json        serve requests (see serving)

SPEC.json: workload, peer, threads, share (of the instances, which of how many), data (training instances),
valid (validation instances, or null), parameters, rules (by node), settings (of the model), warm (seconds
that a form runs before it is measured, once all its shapes have been seen).

Requests: `prepare` (form, batch), `run` (seconds, mode train or infer), `train` (form, batch, epochs, target,
seed, higher: whether more is better), `check` (forms, batch, folder). device: a CPU's, or a GPU's name.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .forms import form
from .serving import Channel, Handler, serve, timed
from .stored import StoredInstances, stored_parameters
from .task import Task

VALID_BATCH = 500
PACKAGES = (("torch", "torch"), ("pyg", "torch_geometric"), ("dynet", "dynet"), ("jax", "jax"))

TASKS = {
    ("mlp", "torch"): "images:Perceptron",
    ("list-reduction", "torch"): "lists:Recurrent",
    ("tree-lstm", "torch"): "trees:TreeLSTM",
    ("tree-lstm", "dynet"): "trees_dynet:DynetTrees",
    ("ggnn", "torch"): "molecules:GatedGraphs",
    ("ggnn", "pyg"): "molecules_pyg:PygGraphs",
    ("bilstm", "torch"): "taggers:Taggers",
    ("bilstm", "dynet"): "taggers_dynet:DynetTaggers",
    ("language-model", "torch"): "language:LanguageModels",
    ("mlp", "jax"): "jax_flat:Perceptron",
    ("list-reduction", "jax"): "jax_flat:Recurrent",
    ("tree-lstm", "jax"): "jax_trees:TreeLSTM",
    ("ggnn", "jax"): "jax_molecules:GatedGraphs",
    ("bilstm", "jax"): "jax_taggers:Taggers",
    ("language-model", "jax"): "jax_language:LanguageModels",
    ("lm", "torch"): "language:FullLanguageModels",
    ("lm", "jax"): "jax_language:FullLanguageModels",
    ("transformer", "torch"): "encoders:Encoders",
    ("transformer", "jax"): "jax_encoders:Encoders",
}


def main(arguments: list[str]) -> None:
    if arguments == ["--probe"]:
        print(json.dumps(probe()))
        return
    spec = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    serve(lambda channel: begin(spec, channel))


def probe() -> dict[str, Any]:
    """Versions by package, or why one is absent; and whether forms can be compiled."""
    found: dict[str, Any] = {"python": sys.version.split()[0], "versions": {}, "absent": {}}
    for peer, package in PACKAGES:
        try:
            module = importlib.import_module(package)
        except Exception as error:  # a broken installation fails in any way
            found["absent"][peer] = f"{type(error).__name__}: {error}"
        else:
            found["versions"][peer] = str(getattr(module, "__version__", "unknown"))
    found["compiler"] = shutil.which(os.environ.get("CXX", "g++"))
    return found


def begin(spec: Mapping[str, Any], channel: Channel) -> tuple[dict[str, Any], dict[str, Handler]]:
    """Load framework and data. Answers wait until then, so that no measurement includes it."""
    threads = int(spec["threads"])
    if spec["peer"] == "dynet":
        version = "2"
    elif spec["peer"] == "jax":
        version = begin_jax(threads, int(spec["share"][0]))
    else:
        import torch

        torch.set_num_threads(threads)
        # Denormal numbers do occur, and are up to a hundred times slower; our side flushes them too.
        torch.set_flush_denormal(True)
        version = torch.__version__
    server = Server(spec, channel)
    return {"version": version, "threads": threads, "units": server.count}, {
        "prepare": server.prepare,
        "run": server.run,
        "train": server.train,
        "check": server.check,
    }


def begin_jax(threads: int, number: int) -> str:
    """Keep XLA, which starts a thread for each processor that it may use, to so many -> JAX's version.

    number: of the process among several, each of which gets processors of its own.
    """
    if hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        first = number * threads % len(usable)
        os.sched_setaffinity(0, set((usable + usable)[first : first + threads]))
    import jax

    return str(jax.__version__)


class Server:
    """Instances and initial parameters, and the form that is prepared at the moment."""

    def __init__(self, spec: Mapping[str, Any], channel: Channel) -> None:
        self.spec, self.channel = spec, channel
        module, _, name = TASKS[spec["workload"], spec["peer"]].partition(":")
        self.kind: Any = getattr(importlib.import_module(f".{module}", __package__), name)
        self.stored = StoredInstances(spec["data"])
        self.parameters = stored_parameters(spec["parameters"])
        self.count = int(self.stored.size.sum())
        self.steps: dict[str, Callable[[], int]] = {}
        self.finish: Callable[[], None] = lambda: None

    def make(self, name: str, data: str | None = None) -> Task:
        """A task in the form of that name, with the initial parameters; data: other instances."""
        stored = self.stored if data is None else StoredInstances(data)
        chosen = form(self.spec["workload"], name)
        device = self.spec.get("device", "cpu")
        task: Task = self.kind(chosen, stored, self.parameters, self.spec["settings"], device)
        return task

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build a form and run it until it is warm: every shape compiled, caches and allocators filled."""
        self.steps = {}
        task = self.make(request["form"])
        self.finish = task.finish
        which, of = self.spec["share"]
        order = np.roll(np.arange(task.units), -(which * task.units // of))
        batches = task.batches(order, int(request["batch"]), whole=True)
        if not batches:
            raise ValueError(f"{task.units} instances make no batch of {request['batch']}")
        for mode, one in (("train", task.trainer(self.spec["rules"])), ("infer", task.evaluate)):
            for batch in unlike(task, batches):
                one(batch)
            self.steps[mode] = cycle(batches, one)
            timed(self.steps[mode], float(self.spec["warm"]), task.finish)
        return {"batches": len(batches)}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.steps:
            raise ValueError("nothing is prepared")
        return timed(self.steps[request["mode"]], float(request["seconds"]), self.finish)

    def train(self, request: dict[str, Any]) -> dict[str, Any]:
        """Train until the validation metric reaches the target, if any; the clock runs while training only.

        Every epoch has new batches, whose making counts as training. What is compiled is compiled before, by
        a step on a batch of each shape, which is taken back.
        """
        size, rules = int(request["batch"]), self.spec["rules"]
        task, valid = self.make(request["form"]), self.make(request["form"], self.spec["valid"])
        held_out = valid.batches(np.arange(valid.units), VALID_BATCH)
        initial, rehearsal = task.state(), task.trainer(rules)
        for batch in unlike(task, task.batches(np.arange(task.units), size)):
            rehearsal(batch)
        task.restore(initial)
        step = task.trainer(rules)
        seconds, history = 0.0, []
        for epoch in range(1, int(request["epochs"]) + 1):
            began = time.perf_counter()
            order = np.random.default_rng([int(request["seed"]), epoch]).permutation(task.units)
            for _, batch in task.batches(order, size):
                step(batch)
            task.finish()
            seconds += time.perf_counter() - began
            valid.restore(task.state())
            scores = [valid.evaluate(batch) for _, batch in held_out]
            value = sum(s.metric for s in scores) / sum(s.rows for s in scores)
            history.append({"epoch": epoch, "seconds": seconds, "metric": value})
            self.channel.progress(**history[-1])
            target = request["target"]
            if target is not None and (value >= target if request["higher"] else value <= target):
                return {"reached": history[-1], "history": history}
        return {"reached": None, "history": history}

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the loss and the gradients of one batch, in each of some forms, into files to compare."""
        told = {}
        for name in request["forms"]:
            task = self.make(name)
            count, batch = task.batches(np.arange(task.units), int(request["batch"]))[0]
            scores = task.evaluate(batch)
            path = Path(request["folder"]) / f"{name}.npz"
            np.savez(path, **task.gradients(batch))  # type: ignore[arg-type]
            told[name] = {"instances": count, **scores._asdict()}
        return told


def unlike(task: Any, batches: list[tuple[int, Any]]) -> list[Any]:
    """One batch of each shape; all of them where a form records each."""
    if task.form.graphed:
        return [batch for _, batch in batches]
    return list({task.shape(batch): batch for _, batch in batches}.values())


def cycle(batches: list[tuple[int, Any]], one: Callable[[Any], Any]) -> Callable[[], int]:
    """A function that does the next batch, for ever -> how many instances it was."""
    at = -1

    def step() -> int:
        nonlocal at
        at = (at + 1) % len(batches)
        count, batch = batches[at]
        one(batch)
        return count

    return step
