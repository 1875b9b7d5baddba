"""Two score forms on all 2^32 FP32 inputs."""
