"""An audit over real ranks: torchrun's launcher underneath, rank 0 judges, the others compute."""
