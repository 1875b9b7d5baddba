"""Triton kernels: device score forms, the certificate over all of them, and the near-tie gate.

Importing this package needs neither Triton nor a GPU; calling what is in it needs both. Under
TRITON_INTERPRET=1 everything runs on the CPU, slowly, with numpy's functions for the device's own.
"""
