"""How many threads BLAS has while a program predicts and afterwards."""

from __future__ import annotations

import threading

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from amphw.library.running import one_blas_thread

assert np.dot(np.ones(2), np.ones(2)) == 2  # BLAS is there


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_blas_has_its_threads_back_when_the_last_of_several_is_out() -> None:
    """They come and go in the order in which a plain stack of limits would leave one thread behind."""
    with threadpool_limits(limits=2):
        second_in, first_out = threading.Event(), threading.Event()

        def second() -> None:
            with one_blas_thread():
                second_in.set()
                first_out.wait(30)

        other = threading.Thread(target=second)
        with one_blas_thread():
            other.start()
            assert second_in.wait(30) and threads() == {1}
        assert threads() == {1}  # the other is still inside
        first_out.set()
        other.join()
        assert threads() == {2}
