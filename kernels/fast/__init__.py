"""The near-tie gate's loops on the CPU: the same answers as the plain selects, faster."""
