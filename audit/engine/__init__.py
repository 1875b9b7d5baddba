"""What runs the parts of a large piece of work: processes here, or a Ray cluster."""
