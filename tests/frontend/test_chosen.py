"""What a network chooses itself, as a number: an index of tables and columns, in loops too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.reference import ReferenceDevice
from amphw.ir.sparse import dense_tables, sparse_parameters
from amphw.ir.update import UpdateRule
from tests.frontend.running import computed

DEVICES = {"reference": lambda: ReferenceDevice(dtype=np.float64), "cpu": CpuDevice}
devices = pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES)
SCORES = fe.Record(x=fe.Floats(3))


def run(device: Device, compiled: fe.Compiled, plain: list[Any], mode: Mode = Mode.TRAIN) -> list[Any]:
    """The outputs of all instances, one after the other."""
    device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(1, updates="off", seed=1))
    found = []
    for number, value in enumerate(plain):
        instance = compiled.encode(value)
        instance.number = number
        device.submit(0, number % 256, instance, mode)
        found += device.drain()
    return found


def test_an_argmax_is_an_index_wherever_an_integer_is() -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    embed = fe.Embedding(3, 2, init=table)
    inside = fe.Layer(
        lambda p, x: fe.concat(fe.argmax(x @ p.W), fe.column(x @ p.W, fe.argmax(x @ p.W))),
        {"W": fe.parameter((3, 3), "identity")},
    )

    def model(x: Any) -> Any:
        best = fe.argmax(x.x)
        asked = fe.column(x.x, best), fe.is_best(x.x, best), fe.cross_entropy(x.x, best)
        return fe.concat(best, embed(best), *asked, inside(x.x))

    xs = np.array([0.5, 2.0, 2.0])
    found, _ = computed(model, SCORES, {"x": xs})
    loss = float(np.log(np.exp(xs - 2.0).sum()))
    np.testing.assert_allclose(found[0], [1, 2, 3, 2.0, 1, loss, 1, 2.0], atol=1e-12)


def test_a_sample_has_the_probabilities_of_a_softmax() -> None:
    spec = fe.Record(rows=fe.Sequence(fe.Floats(3), most=4000))
    scores = np.log([0.5, 0.2, 0.3])

    def model(x: Any) -> Any:
        return fe.concat(fe.sample(x.rows.item), fe.sample(x.rows.item), fe.sample(x.rows.item, seed=5))

    found, _ = computed(model, spec, {"rows": np.tile(scores, (4000, 1))})
    again, _ = computed(model, spec, {"rows": np.tile(scores, (4000, 1))})
    np.testing.assert_array_equal(found, again)
    for column in found.T:
        shares = np.bincount(column.astype(int), minlength=3) / 4000
        np.testing.assert_allclose(shares, [0.5, 0.2, 0.3], atol=0.03)
    assert (found[:, 0] != found[:, 1]).mean() == pytest.approx(1 - 0.38, abs=0.03)  # independent


@devices
def test_every_instance_and_every_turn_draws_for_itself(make: Any) -> None:
    top = fe.Linear(2)

    def model(x: Any) -> None:
        def turn(carry: Any, i: Any) -> Any:
            word = fe.sample(top(fe.constant(1)))
            return carry + word, word

        _, words = fe.scan(turn, fe.constant(1), x.n)
        fe.loss(words, word=words)

    compiled = fe.compile(model, fe.Record(n=fe.Sequence(fe.Int(2), most=30)))
    plain = [{"n": [0] * 30}] * 8
    drawn = np.array([r.outputs["loss"]["word"][:, 0] for r in run(make(), compiled, plain, Mode.PREDICT)])
    assert len({tuple(row) for row in drawn}) == 8
    assert 0.4 < drawn.mean() < 0.6 and set(drawn.mean(axis=0)) > {0.5}


def large_table(rows: int) -> tuple[Any, fe.Spec]:
    """A decoder that reads what it chose from a large table, for as many turns as it likes."""
    embed, cell, head = fe.Embedding(rows, 4), fe.RNN(4), fe.Linear(rows)

    def model(x: Any) -> None:
        def turn(carry: Any) -> Any:
            h, last, score = carry
            h = cell(h, embed(last))
            logits = head(h)
            word = fe.argmax(logits)
            return h, word, score + fe.column(logits, word)

        start = fe.constant(4), fe.number(x.first), fe.constant(1)
        _, last, score = fe.while_loop(lambda c: 2.5 - c[2], turn, start, most=4)
        fe.loss(score, last=last)

    return model, fe.Record(first=fe.Int(rows))


@devices
def test_a_decoder_of_many_words_reads_its_own_and_trains_their_rows_alone(make: Any) -> None:
    model, spec = large_table(20_000)
    compiled, device = fe.compile(model, spec), make()
    (report,) = run(device, compiled, [{"first": 19_999}])
    parameters = device.parameters()
    v = {n: p.values for n, p in parameters.items()}
    h, last, score, read = np.zeros(4), 19_999, 0.0, set()
    for _ in range(4):
        if not score < 2.5:
            break
        read.add(last)
        h = np.tanh(np.concatenate([v["embed"]["E"][last], h]) @ v["cell"]["W"] + v["cell"]["b"])
        logits = h @ v["head"]["W"] + v["head"]["b"]
        last = int(logits.argmax())
        score += logits[last]
    assert report.sums["loss"]["loss"] == pytest.approx(score, rel=1e-5)
    assert report.sums["loss"]["last"] == last
    touched = np.flatnonzero(np.abs(parameters["embed"].gradients["E"]).sum(axis=1))
    assert set(touched) == read and len(read) > 1


@devices
@pytest.mark.parametrize(
    ("number", "said"), [(0.5, "no whole"), (3.0, "outside"), (-1.0, "outside"), (1e9, "no whole")]
)
def test_a_number_that_is_no_row_is_an_error(make: Any, number: float, said: str) -> None:
    embed = fe.Embedding(3, 2)
    compiled = fe.compile(lambda x: fe.loss(fe.sum_columns(embed(x.x))), fe.Record(x=fe.Floats(1)))
    with pytest.raises(AmphwError, match=said):
        run(make(), compiled, [{"x": [number]}])


def test_a_table_that_is_looked_up_by_choice_is_not_sparse() -> None:
    graph = fe.compile(*large_table(50)).graph
    assert sparse_parameters(graph) == []
    assert dense_tables(graph) == {"embed.E": "its rows are looked up by numbers that the network computes"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: fe.argmax(x.x[:1]), "argmax chooses one of several columns"),
        (lambda x: fe.sample(x.x[:1]), "sample chooses one of several columns"),
        (lambda x: fe.Embedding(3, 2)(x.x), "an embedding is by one number a row, got 3; `argmax"),
        (lambda x: fe.column(x.x, x.x), "column is by one number a row, got 3; `argmax"),
        (lambda x: x.x.argmax(), "write `argmax"),
    ],
)
def test_what_is_no_choice_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(fe.FrontendError, match=said):
        fe.compile(lambda x: fe.loss(fe.sum_columns(wrong(x))), SCORES)


def test_a_table_with_more_rows_than_a_number_tells_apart_is_refused() -> None:
    embed, top = fe.Embedding(2**24 + 1, 1), fe.Linear(4)

    def model(x: Any) -> None:
        fe.regress(embed(fe.argmax(top(x.x))), x.y)

    with pytest.raises(fe.FrontendError, match="16777216 rows at most, got 16777217"):
        fe.compile(model, fe.Record(x=fe.Floats(3), y=fe.Floats(1)))
