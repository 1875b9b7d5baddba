"""What is compared: paths, their stages, and the reference that judges them."""
