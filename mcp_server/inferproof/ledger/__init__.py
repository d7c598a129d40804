"""The signed, chained record."""
