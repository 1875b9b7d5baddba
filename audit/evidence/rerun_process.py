"""What the new process of ``rerun_evidence`` runs."""

import sys

from .rerun import main

if __name__ == "__main__":
    sys.exit(main())
