"""Numbers of the normal rows: shared by the host's loops and the device's kernel.

Sources: see ``normal``. Each is exact in the type that it is used in.
"""

from __future__ import annotations

from typing import Final

GOLDEN: Final = 0x9E3779B97F4A7C15
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB

STEP: Final = 2.0**-31
ROOT_2: Final = 1.4142135623730951
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# Pattern of sqrt(1/2): fractions are taken from there to sqrt(2).
ROOT_HALF_BITS: Final = 0x3F3504F3
LOGARITHM: Final = (
    3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
    -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
)  # fmt: skip
NEAR: Final = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
FAR: Final = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip
MIDDLE, EDGE, FAR_MIDDLE = 2.5, 5.0, 3.0
"""Middle of the near polynomial, where the far one begins, and the middle of that one's root."""
