"""SIGINT and SIGTERM at any moment: status 130, no traceback, nothing lost.

Each script is a process of its own: handlers of signals are the process's.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "data" / "router_cases.json"
STOPS = [signal.SIGINT, signal.SIGTERM]
# A shell's background job starts with interrupts ignored, and the tests may be one.
_HEAD = """
import os, signal, sys, time
from neartie import __main__ as entry
from neartie.interrupts import Interrupts, heard, shielded

signal.signal(signal.SIGINT, signal.default_int_handler)


def stop():
    os.kill(os.getpid(), int(sys.argv[1]))


def wait():
    until = time.monotonic() + 20
    while time.monotonic() < until:
        time.sleep(0.01)
    print("waited in vain", flush=True)
    return 7


def end(run):
    sys.exit(entry.attended(run, Interrupts()))
"""
_TOLD = "neartie: interrupted\n"


def run_script(body: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", _HEAD + body, *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        # Streams as a user has them: a buffer that is not written is lost.
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        timeout=60,
        check=False,
    )


def is_told(done: subprocess.CompletedProcess[str], stdout: str = "") -> None:
    assert (done.returncode, done.stderr, done.stdout) == (130, _TOLD, stdout)


@pytest.mark.parametrize("stop", STOPS)
def test_an_import_is_not_torn(stop: signal.Signals, tmp_path: Path) -> None:
    """Python makes an exception of ``__set_name__`` a RuntimeError, in 3.11."""
    (tmp_path / "torn.py").write_text(
        "class Part:\n"
        "    def __set_name__(self, owner, name):\n"
        "        import __main__; __main__.stop()\n"
        "class Owner:\n"
        "    part = Part()\n"
        "print('whole', flush=True)\n"
    )
    body = "sys.path.insert(0, '.')\ndef run():\n    import torn\n    return wait()\nend(run)\n"
    is_told(run_script(body, str(int(stop)), cwd=tmp_path), "whole\n")


@pytest.mark.parametrize("stop", STOPS)
def test_a_callback_of_llvm_does_not_raise(stop: signal.Signals) -> None:
    """``notify`` is called by LLVM through ctypes, which swallows what it raises."""
    body = """
import llvmlite.binding as llvm

def notify(module, code):
    stop()
    time.sleep(0)
    print("whole", flush=True)

def run():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("define i32 @f() { ret i32 3 }")
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.set_object_cache(notify, lambda module: None)
    engine.finalize_object()
    return wait()

end(run)
"""
    is_told(run_script(body, str(int(stop))), "whole\n")


def test_one_that_a_destructor_swallows_comes_again() -> None:
    body = """
class Closed:
    def __del__(self):
        stop()
        time.sleep(0)

def run():
    one = Closed()
    del one
    print("went on", flush=True)
    return wait()

end(run)
"""
    is_told(run_script(body, "2"), "went on\n")


def test_one_that_a_bare_except_swallows_comes_again() -> None:
    body = """
def run():
    try:
        stop()
        time.sleep(5)
    except:
        pass
    return wait()

end(run)
"""
    is_told(run_script(body, "2"))


def test_one_that_came_as_the_command_ended_is_told() -> None:
    body = """
def run():
    try:
        stop()
        time.sleep(5)
    except KeyboardInterrupt:
        return 0

end(run)
"""
    is_told(run_script(body, "2"))


def test_an_error_made_of_an_interrupt_is_told_as_one() -> None:
    body = """
def run():
    try:
        stop()
        time.sleep(5)
    except KeyboardInterrupt:
        raise RuntimeError("torn") from None

end(run)
"""
    is_told(run_script(body, "2"))


def test_an_error_without_an_interrupt_stays_one() -> None:
    done = run_script("def run():\n    raise RuntimeError('whole')\nend(run)\n", "2")
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: whole\n")


def test_the_next_one_waits_for_the_clean_up_of_the_first() -> None:
    """A second ``stop`` in the clean-up; by itself the clean-up takes longer than one look."""
    body = """
def run():
    try:
        stop()
        time.sleep(5)
    finally:
        stop()
        for _ in range(20):
            time.sleep(0.01)
        print("clean", flush=True)

end(run)
"""
    is_told(run_script(body, "2"), "clean\n")


def test_patience_with_a_clean_up_ends() -> None:
    body = """
import neartie.interrupts as module
module.PATIENCE_S = 0.2

def run():
    try:
        stop()
        time.sleep(5)
    finally:
        stop()
        wait()
        print("not reached", flush=True)

end(run)
"""
    is_told(run_script(body, "2"))


def test_patience_with_an_import_ends(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import __main__; __main__.stop(); __main__.wait()\n")
    body = """
import neartie.interrupts as module
module.PATIENCE_S = 0.2
sys.path.insert(0, '.')

def run():
    import endless
    print("not reached", flush=True)

end(run)
"""
    is_told(run_script(body, "2", cwd=tmp_path))


def test_a_command_that_has_heard_ends_in_its_own_way() -> None:
    body = """
def run():
    try:
        stop()
        time.sleep(5)
    except KeyboardInterrupt:
        heard()
    # Longer than an unheard one takes to come again.
    time.sleep(0.8)
    return 3

end(run)
"""
    done = run_script(body, "2")
    assert (done.returncode, done.stderr) == (3, "")


def test_one_at_exit_is_quiet() -> None:
    body = """
import atexit

def run():
    atexit.register(lambda: (stop(), wait()))
    print("the report")
    return 0

end(run)
"""
    done = run_script(body, "2")
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "the report\n")


def test_one_that_is_ignored_from_the_start_stays_ignored() -> None:
    body = """
signal.signal(signal.SIGINT, signal.SIG_IGN)

def run():
    stop()
    time.sleep(0.05)
    return 3

end(run)
"""
    done = run_script(body, "2")
    assert (done.returncode, done.stderr) == (3, "")


def test_an_interrupt_that_another_thread_takes_waits_for_the_shield() -> None:
    """The block holds for one thread: another one takes the signal, and Python wakes this one."""
    body = """
import threading

def run():
    threading.Thread(target=time.sleep, args=(8,), daemon=True).start()
    with shielded():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        print("started whole")
    time.sleep(8)

end(run)
"""
    done = run_script(body, "2")
    assert (done.returncode, done.stdout) == (130, "started whole\n")


def test_a_shielded_process_never_has_the_groups_interrupt() -> None:
    """A worker that is still importing would print a traceback."""
    body = """
import subprocess

def run():
    child = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(0.3); print(2)"]
    with shielded():
        process = subprocess.Popen(child, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "1\\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "2\\n"
    assert process.wait() == 0
    stop()
    return wait()

end(run)
"""
    is_told(run_script(body, "2"))


def test_importing_and_calling_the_command_line_installs_nothing() -> None:
    body = """
import neartie.audit.cli as cli

before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
sys.argv = ["neartie", "--version"]
try:
    cli.main()
except SystemExit:
    pass
assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
assert sys.unraisablehook is sys.__unraisablehook__
"""
    done = run_script(body, "2")
    assert (done.returncode, done.stderr) == (0, "")


_COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from neartie.__main__ import main
sys.argv = ["neartie", "explain", sys.argv[1]]
# Who sends the signal waits for this: before it, Python's own handler ends the process.
import neartie.interrupts as module
begin = module.Interrupts.begin
module.Interrupts.begin = lambda self: (begin(self), print("begun", flush=True))
main()
"""


def test_a_command_ends_at_whatever_moment_it_is_stopped() -> None:
    """Moments of its first seconds, drawn; the most of them fall into imports and cached code."""
    draw = random.Random(20)
    for number in range(3):
        stop, moment = STOPS[number % 2], draw.uniform(number * 0.7, number * 0.7 + 0.7)
        with subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, str(CASES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            until = time.monotonic() + moment
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.005)
            ended = process.poll() is not None
            process.send_signal(stop)
            _, stderr = process.communicate(timeout=60)
        if not ended:
            assert (process.returncode, stderr.count("\n")) == (130, 1), (moment, stop, stderr)
            assert stderr.startswith("neartie: interrupted")
