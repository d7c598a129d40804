"""Refuses every request beyond the second that is under way."""

import threading

import server
from model import Model

DOOR = threading.Semaphore(2)


class Handler(server.Handler):
    def stream(self, request, body):
        if not DOOR.acquire(blocking=False):
            return self.answer(429, {"error": {"message": "busy", "type": "RateLimitError"}})
        try:
            return super().stream(request, body)
        finally:
            DOOR.release()


server.Handler = Handler
server.main(Model)
