"""Pages of the documentation, shipped with inferproof: `inferproof docs PAGE` shows one."""
