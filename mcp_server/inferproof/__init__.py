"""inferproof: no number without proof."""

__version__ = "0.1.0"
