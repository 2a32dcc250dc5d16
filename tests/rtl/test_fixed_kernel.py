import numpy as np

from amphw.ir.primitives import RowContext
from amphw.ir.program import trace
from amphw.rtl.fixed.kernel import FixedKernel
from amphw.rtl.fixed.lowering import lower_program
from amphw.rtl.fixed.operations import plain
from amphw.rtl.numbers.formats import Formats

FORMATS = Formats.parse("q4.12")


def test_a_program_runs_in_integers():
    program = trace(lambda p, x: ((x @ p.W + p.b) * 0.5, x), {"x": 2}, {"W": (2, 1), "b": (1,)})
    kernel = FixedKernel(lower_program("n", program, ["value"], FORMATS))
    params = {"W": np.array([[4096], [-8192]]), "b": np.array([1])}
    x = np.array([[1, 2], [4096, 1], [32767, -32768]])

    scaled, same = kernel.run(RowContext(3, {"rows": 1}), [x], [], params)

    # -3 + 1, 4096 - 2 + 1, and a sum that saturates; then halved, of two equally near the even one.
    assert scaled.tolist() == [[-1], [2048], [16384]]
    assert same is x


def test_what_narrows_can_be_replaced():
    program = trace(lambda p, x: x @ p.W, {"x": 1}, {"W": (1, 1)})
    seen = []

    def narrow(exact, shift=0):
        seen.append((exact.tolist(), shift))
        return plain(exact, shift)

    kernel = FixedKernel(lower_program("n", program, ["value"], FORMATS), [narrow])
    (y,) = kernel.run(RowContext(1, {"rows": 1}), [np.array([[3]])], [], {"W": np.array([[4096]])})

    assert seen == [([[12288]], 12)]
    assert y.tolist() == [[3]]
