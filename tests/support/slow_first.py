"""Files of tests that take long, longest first.

A worker of pytest-xdist takes whole files, in the order of the collection (``make test``): a file
of two minutes that is taken last leaves the other cores idle for as long.
"""

from typing import Final

SLOW_FIRST: Final = (
    "audit/test_ray_engine.py",
    "audit/test_signoff_figures.py",
    "audit/test_value_judge.py",
    "ranks/test_launch.py",
    "audit/test_device_gate.py",
    "audit/test_auto_gate.py",
    "audit/test_k3_mini.py",
    "test_cli.py",
    "audit/test_planted_faults.py",
    "audit/test_verify.py",
    "audit/test_rejudge.py",
    "test_docs.py",
    "audit/test_gate.py",
    "ranks/test_bench.py",
    "audit/test_run.py",
    "why/test_why.py",
    "audit/test_sign.py",
    "fuzz/test_fuzz.py",
    "test_notebooks.py",
)
"""Below tests/: what takes about 20 seconds of processor time and more."""
