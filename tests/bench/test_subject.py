"""Driving a process over a pipe: answers, progress, errors, and ends of every kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from amphw.bench.subject import Subject, SubjectError

SERVED = """
    import sys
    from amphw.bench.serving import serve, timed
    def begin(channel):
        print("chatter of a library")  # goes to stderr
        def count(request):
            for n in range(request["to"]):
                channel.progress(n=n)
            return {"n": request["to"]}
        def die(request):
            print("last words", file=sys.stderr, flush=True)
            import os; os._exit(7)
        def fail(request):
            raise ValueError("no such thing")
        return {"hello": 1}, {"count": count, "die": die, "fail": fail}
    serve(begin)
"""


def subject(program: str, label: str = "it") -> Subject:
    from amphw.bench.sides import _our_environment

    return Subject(label, [sys.executable, "-c", textwrap.dedent(program)], _our_environment())


def test_requests_are_answered_with_progress_in_between() -> None:
    with subject(SERVED) as it:
        assert it.ready() == {"hello": 1}
        seen: list[int] = []
        it.send("count", to=3)
        assert it.answer(progress=lambda values: seen.append(values["n"])) == {"n": 3}
        assert seen == [0, 1, 2]


def test_an_error_leaves_the_process_alive() -> None:
    with subject(SERVED) as it:
        it.ready()
        with pytest.raises(SubjectError, match="^it: ValueError: no such thing$"):
            it.ask("fail")
        with pytest.raises(SubjectError, match="a request can be count, die, fail"):
            it.ask("dance")
        assert it.ask("count", to=0) == {"n": 0}


def test_a_death_is_told_with_the_last_words() -> None:
    with subject(SERVED) as it:
        it.ready()
        with pytest.raises(SubjectError, match=r"it ended with code 7; its last words: [\s\S]*last words"):
            it.ask("die")
        assert not it.alive()
        with pytest.raises(SubjectError, match="ended with code 7"):
            it.ask("count", to=1)


def test_one_that_cannot_begin_says_why() -> None:
    with (
        subject("from amphw.bench.serving import serve\nserve(lambda channel: 1 / 0)") as it,
        pytest.raises(SubjectError, match="it: ZeroDivisionError: division by zero"),
    ):
        it.ready()


def test_one_that_hangs_is_ended() -> None:
    with subject("import time; time.sleep(60)", "sleeper") as it:
        with pytest.raises(SubjectError, match="sleeper did not answer within 0 s"):
            it.ready(timeout=0.2)
        assert not it.alive()


def test_what_is_not_the_protocol_is_shown() -> None:
    with (
        subject("print('Hello, world', flush=True)") as it,
        pytest.raises(SubjectError, match="it answered 'Hello, world', which is no JSON object"),
    ):
        it.ready()


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(SubjectError, match="ghost cannot be started: "):
        Subject("ghost", ["/does/not/exist"])


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_process_ends_with_the_one_that_started_it() -> None:
    """Also at a request that would take for ever."""
    begun = """
        import subprocess, sys, time
        program = '''
        from amphw.bench.serving import serve
        import os, time
        def begin(channel):
            print(os.getpid(), flush=True)
            time.sleep(600)
        serve(begin)
        '''
        import textwrap
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(begun)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as starter:
        assert starter.stderr is not None
        served = int(starter.stderr.readline())  # what is printed goes to stderr
        starter.kill()
    for _ in range(100):
        if not _runs(served):
            return
        time.sleep(0.1)
    os.kill(served, signal.SIGKILL)
    pytest.fail("the process goes on without the one that started it")


def _runs(pid: int) -> bool:
    """Neither gone nor waiting for somebody to hear of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
