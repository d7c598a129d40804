"""One file per judge; GATES is the order."""
