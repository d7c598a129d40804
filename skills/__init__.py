"""Skill templates shipped with inferproof."""
