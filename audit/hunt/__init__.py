"""Adversarial search: rows on which two paths differ as the policy does not allow."""
