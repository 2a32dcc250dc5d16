"""TEMP host-side parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.engine.lower import Unit
from amphw.engine.tile_code import TiledUnit
from amphw.ir.derive import accumulate
from amphw.ir.update import NodeParameters
from amphw.opencl import abi


class UnitParameters:
    def __init__(self, executor: Any, unit: Unit, tiled: TiledUnit, node: NodeParameters | None, faults: Any):
        self.ex, self.unit, self.tiled, self.node = executor, unit, tiled, node
        self.text = ""
        cl = executor.cl
        self.buffers: dict[str, Any] = {}
        self.specs = unit.behaviour.program.params
        self.transposed = {}
        for code in (tiled.forward, tiled.inference, tiled.backward):
            for p in code.phases if code else ():
                if p.transposed:
                    self.transposed[p.param] = (p.first_row, p.width)
        shapes = [p.shape if len(p.shape) == 2 else (1, *p.shape) for p in self.specs]
        shapes += [(shapes[f.table][0], shapes[f.weight][1]) for f in tiled.folds]
        self.shapes = shapes
        for k, (r, c) in enumerate(shapes):
            n = int(np.prod(abi.padded(r, c))) + 64
            self.buffers[f"p{k}"] = cl.Buffer(executor.context, cl.mem_flags.READ_WRITE, n * 4)
            if k in self.transposed:
                n = int(np.prod(abi.padded(c, r))) + 64
                self.buffers[f"p{k}t"] = cl.Buffer(executor.context, cl.mem_flags.READ_WRITE, n * 4)

    def use(self, program: Any) -> None: ...

    def _put(self, name: str, a: np.ndarray) -> None:
        out = np.zeros(abi.padded(*a.shape), np.float32)
        out[: a.shape[0], : a.shape[1]] = a
        self.ex.cl.enqueue_copy(self.ex.queue, self.buffers[name], out)

    def push(self, node: NodeParameters) -> None:
        self.node = node
        v = [node.values[p.name].reshape(s) for p, s in zip(self.specs, self.shapes)]
        for f in self.tiled.folds:
            t = v[f.table] @ v[f.weight][f.first_row : f.first_row + f.width]
            if f.bias >= 0:
                t = t + v[f.bias]
            v.append(t)
        for k, a in enumerate(v):
            self._put(f"p{k}", a)
            if k in self.transposed:
                first, width = self.transposed[k]
                part = a[first : first + width] if first >= 0 else a
                self._put(f"p{k}t", part.T)

    def fetch(self, node: NodeParameters) -> None: ...

    def reduce(self, place: int, rows: Sequence[int]) -> None:
        ex = self.ex
        ex.queue.finish()
        w, fl = ex.memory.arena.words, ex.memory.arena.floats
        head = w[place : place + 64]
        node = self.node
        nb = len(self.tiled.log_buffers)
        grads = [node.gradients[p.name].reshape(s) for p, s in zip(self.specs, self.shapes)]
        tg = [np.zeros(s, np.float32) for s in self.shapes[len(self.specs) :]]
        for t in self.tiled.terms:
            def buf(b):
                width, space = self.tiled.log_buffers[b]
                n, at, st = rows[space], int(head[abi.LOG_BUFFERS + b]), abi.row_stride(width)
                return fl[at : at + n * st].reshape(n, st)[:, :width]
            d = buf(t.d)
            g = (grads + tg)[t.param]
            if t.kind == "matmul":
                x = buf(t.x)
                g[t.first_row : t.first_row + x.shape[1]] += x.T @ d
            elif t.kind == "sum":
                g[0] += d.sum(0)
            else:
                i = self.tiled.log_ints.index(t.ints)
                at = int(head[abi.LOG_BUFFERS + nb + i])
                idx = w[at : at + 2 * len(d)].view(np.int64)
                np.add.at(g, idx, d)
        v = [node.values[p.name].reshape(s) for p, s in zip(self.specs, self.shapes)]
        for f, dt in zip(self.tiled.folds, tg):
            sl = slice(f.first_row, f.first_row + f.width)
            grads[f.weight][sl] += v[f.table].T @ dt
            grads[f.table] += dt @ v[f.weight][sl].T
            if f.bias >= 0:
                grads[f.bias][0] += dt.sum(0)

    def update(self, gradient_rows: int, version: int) -> None:
        self.node.rows = gradient_rows
        values = self.node.prepare()
        v = self.node.version
        self.node.publish(values)
        self.node.version = v
        self.push(self.node)

    def release(self) -> None: ...
