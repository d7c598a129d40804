"""Values, errors and digests: what every other part names things with."""
