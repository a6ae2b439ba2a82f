"""Templates of the reports."""
