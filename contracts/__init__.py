"""Contract library shipped with inferproof."""
