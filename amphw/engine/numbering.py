"""Numbers that Python and the C++ engine exchange. `native_headers` writes them for C++."""

from __future__ import annotations

from enum import IntEnum

WORTH_REDUCING = 256
"""Logged gradient rows from which a weight-gradient product runs near its best speed."""


class FrameKind(IntEnum):
    """What a frame computes."""

    BACKWARD = 0
    FORWARD = 1
    INFER = 2  # forward, without what the backward direction needs


class Order(IntEnum):
    """What decides among queues of equal priority."""

    Age = 0  # of the oldest instance in it
    Arrival = 1  # of its next firing
    Rows = 2  # the most


class Failure(IntEnum):
    """What went wrong inside the engine, with what is said beside it."""

    Fault = 0  # an outcome that no route takes; detail: the trap, or -1 for a read outside a table
    Outside = 1  # a message to a state outside its domain; detail: the target unit
    Twice = 2  # one state at one port a second time; detail: the target unit, extra: the operand
    Index = 3  # a program reads outside a table; text may say more
    Decision = 4  # a decided field outside its extent; detail: number of the field, extra: the value
    Loss = 5  # a loss is not finite
    Gradient = 6  # a gradient is not finite; text: the parameter
    Internal = 7  # text says what
    Replay = 8  # asked for a firing that is not ready, detail: its kind; or, unit: -1, for what text says
    Memory = 9  # no room in the memory of an external executor; text says for what
    Absent = 10  # a row of a table that its owner has not sent; detail: the row, text: the table


class EventType(IntEnum):
    """An event of the service order, as a log has it."""

    Submit = 0
    Start = 1
    End = 2
    Seal = 3
    Reduced = 4
    Retire = 5


class Cause(IntEnum):
    """Why logged gradient rows were made one sum; in the order of `service_log.CAUSES`."""

    Sum = 0
    Update = 1
    Interval = 2


class TermKind(IntEnum):
    """How a log's rows become the gradient of a parameter (`tiles.code.Term`)."""

    Matmul = 0
    Sum = 1
    Take = 2


class ExprOp(IntEnum):
    """Words of an expression's prefix code.

    It is CONST value | FIELD column | ATTR number | TABLE number dimensions index... | operation operand...
    """

    CONST = 0
    FIELD = 1
    ATTR = 2
    TABLE = 3
    ADD = 4
    SUB = 5
    MUL = 6
    FLOORDIV = 7
    MOD = 8
    LESS = 9
    LESS_EQUAL = 10
    EQUAL = 11
    NOT_EQUAL = 12
    MIN = 13
    MAX = 14
    HASH = 15
    WHERE = 16


EXPRESSION_OPS = {
    "+": ExprOp.ADD,
    "-": ExprOp.SUB,
    "*": ExprOp.MUL,
    "//": ExprOp.FLOORDIV,
    "%": ExprOp.MOD,
    "<": ExprOp.LESS,
    "<=": ExprOp.LESS_EQUAL,
    "==": ExprOp.EQUAL,
    "!=": ExprOp.NOT_EQUAL,
    "min": ExprOp.MIN,
    "max": ExprOp.MAX,
    "hash": ExprOp.HASH,
    "where": ExprOp.WHERE,
}
"""By the name of an operation in `amphw.ir.expr`."""
