"""The form of the kernels: what differs between a CPU and a GPU, and what is measured per device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductForm:
    """How one product is computed.

    A work-item keeps `rows` x `vectors` vectors of the result in registers. local: the work-group, `group` x
    `group` work-items, takes both factors through local memory, `depth` columns at a time (for GPUs).
    tiles: how many tiles, one below the other, a work-item of the plain form computes.
    """

    rows: int = 8
    vectors: int = 2
    local: bool = False
    group: int = 1
    depth: int = 16
    tiles: int = 1


@dataclass(frozen=True)
class Form:
    """How a device likes its kernels.

    vector: floats of a vector type; 1: none. lanes: work-items that share a row where there is no product,
    which is also the size of the work-group. rows_per_item: rows that a work-group of one lane goes through;
    several lanes take one row. panels: whether matrices lie in panels of a vector (`amphw.opencl.layout`).
    """

    vector: int = 16
    lanes: int = 1
    rows_per_item: int = 8
    product: ProductForm = ProductForm()
    panels: bool = False

    @property
    def panel(self) -> int:
        """Columns of a panel; 0: matrices lie row after row."""
        return self.vector if self.panels else 0


CPU_FORM = Form(panels=True)
GPU_FORM = Form(
    vector=1, lanes=32, rows_per_item=1, product=ProductForm(rows=4, vectors=4, local=True, group=16)
)
SINGLE_FORM = Form(vector=4, lanes=1, product=ProductForm(rows=4, vectors=1))
"""For GPUs whose work-groups hold one work-item, or too little local memory for the tiles."""
