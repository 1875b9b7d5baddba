"""What is concluded: differences, bounds, verdict, evidence."""
