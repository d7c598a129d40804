"""One file per MCP tool; TOOLS is the list."""
