"""Stands in for the harness where the snapshot comes first on the path."""
