"""A signal that wishes the end is heard whatever the main thread does, and ends no start half-way."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from policy_engine.embedded.stop import Stop


def python(text, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, timeout=30, check=False, **options,
    )  # fmt: skip


def test_a_stop_is_waited_for_and_stays():
    stop = Stop()
    began = time.monotonic()
    assert (False, False) == (stop.wait(0.05), stop.is_set())
    assert time.monotonic() - began >= 0.05
    for _ in range(70_000):  # more than the pipe holds
        stop.set()
    assert (True, True, True) == (stop.wait(60), stop.wait(60), stop.is_set())


def test_a_signal_at_any_moment_of_the_wait_ends_it_and_is_told_once():
    """`threading.Event` deadlocks here: its `set` waits for the lock that the interrupted `wait` holds."""
    done = python(
        """
        import os, signal, threading, time
        from policy_engine.embedded.stop import Stop
        told = []
        for _ in range(300):
            stop = Stop()
            stop.on_signals(lambda: told.append(1))
            pause = threading.Thread(target=lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(3)])
            pause.start()
            while not stop.wait(0.0001):
                pass
            pause.join()
        print(len(told))
        """
    )
    assert ("300\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_ends_it_but_not_under_nohup(ignored):
    before = signal.SIG_IGN if ignored else signal.SIG_DFL
    done = python(
        """
        import os, signal
        from policy_engine.embedded.stop import Stop
        stop = Stop()
        stop.on_signals(lambda: print("told"))
        os.kill(os.getpid(), signal.SIGHUP)
        print(stop.wait(0.2))
        """,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, before),
    )
    assert ("False\n" if ignored else "told\nTrue\n") == done.stdout


def test_an_interrupt_while_the_program_is_read_is_no_traceback():
    code = "import os, signal, sys; sys.meta_path.insert(0, type('F', (), {'find_spec': staticmethod("
    code += "lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'typer' else None)}))\n"
    code += "from policy_engine.__main__ import main; main()"
    done = python(code)
    assert (130, "") == (done.returncode, done.stderr)


def test_the_line_of_a_handler_does_not_meet_the_line_that_it_interrupts(capfd):
    from policy_engine.embedded.up import Says

    with os.fdopen(os.dup(1), "w") as out:
        says = Says(out)
        says.stopping()
        says.stopping()
        says.line("end")
    assert ["stopping", "end"] == [line.split()[-1] for line in capfd.readouterr().out.splitlines()]
