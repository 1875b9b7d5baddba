"""Real ranks: one process each, which exchange over NCCL, symmetric memory, or gloo on a CPU."""
