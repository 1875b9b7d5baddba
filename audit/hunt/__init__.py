"""Adversarial search: rows on which two paths differ outside the policy's window."""
