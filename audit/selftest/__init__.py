"""The auditor audited: known faults are planted in a path, and the audit has to name each."""
