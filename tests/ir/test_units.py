import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.device import LinkRate
from amphw.ir.errors import AmphwError
from amphw.ir.units import quantity, written


@pytest.mark.parametrize(
    ("text", "of", "value"),
    [
        ("10Gb/s", "bits a second", 1e10),
        ("1.5 MB/s", "bits a second", 1.2e7),
        ("250 MFLOPS", "operations a second", 2.5e8),
        ("1TFLOPS", "operations a second", 1e12),
        ("1e3FLOPS", "operations a second", 1e3),
        ("1.2MB", "bytes", 1.2e6),
        ("4KiB", "bytes", 4096),
        ("20us", "seconds", 20e-6),
        (".5s", "seconds", 0.5),
        ("50MHz", "cycles a second", 5e7),
        ("20k/s", "instances a second", 2e4),
        ("20000/s", "instances a second", 2e4),
        ("1.5 M/s", "instances a second", 1.5e6),
    ],
)
def test_a_quantity_is_read(text, of, value):
    assert quantity(text, of) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("10", "bits a second"),  # of what?
        ("10GB", "bits a second"),
        ("0b/s", "bits a second"),
        ("-1b/s", "bits a second"),
        ("1e999b/s", "bits a second"),
        ("fast", "operations a second"),
        ("1xFLOPS", "operations a second"),
        ("1Ms", "seconds"),
        ("20000", "instances a second"),
        ("20kb/s", "instances a second"),
        ("0/s", "instances a second"),
        ("-1/s", "instances a second"),
        ("", "bytes"),
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(text, of):
    with pytest.raises(AmphwError, match="write it as"):
        quantity(text, of)


@given(st.floats(1e-9, 9e17))
def test_a_number_written_for_people_is_within_its_digits(value):
    number, unit = written(value, "b/s").split()
    sizes = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    assert float(number) * sizes[unit.removesuffix("b/s")] == pytest.approx(value, rel=6e-3)


def test_a_number_that_reaches_the_next_prefix():
    assert written(999_999, "b/s") == "1 Mb/s" and written(999.4, "b/s") == "999 b/s"


@pytest.mark.parametrize("text", ["100Mb/s", "100Mb/s+20us", "1.5Gb/s+1ms"])
def test_a_link_is_written_as_it_is_read(text):
    assert str(LinkRate.parse(text)) == text
