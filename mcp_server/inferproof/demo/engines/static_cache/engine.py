"""Qwen3 in plain torch behind an OpenAI-compatible server."""

import server
from model import Model

if __name__ == "__main__":
    server.main(Model)
