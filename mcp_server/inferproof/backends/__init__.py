"""One file per way to produce evidence."""
