"""Run the command line as ``python -P -m neartie``."""

from .audit.cli import main

if __name__ == "__main__":
    main()
