"""One record, several readers: terminal, pull request, notebook."""
