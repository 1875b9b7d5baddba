"""Claims: the sentences of a sign-off, each with the check that answers it."""
