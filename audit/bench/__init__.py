"""``neartie bench``: component times of paths on real ranks, checked before they are told."""
