"""Read, seal and track a campaign."""
