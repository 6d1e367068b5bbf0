"""What users call: arguments are checked here, before anything costs time."""
