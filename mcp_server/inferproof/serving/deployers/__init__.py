"""Where replicas live: one file for each kind of place."""
