"""Engines on the bench: replicas, load and the reference they are measured against."""
