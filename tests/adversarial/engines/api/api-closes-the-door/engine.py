"""Hangs up on whoever comes while twenty others are being served."""

import threading

import server
from model import Model

DOOR = threading.Semaphore(20)


class Handler(server.Handler):
    def do_POST(self):
        if not DOOR.acquire(blocking=False):
            self.close_connection = True
            return
        try:
            super().do_POST()
        finally:
            DOOR.release()


server.Handler = Handler
server.main(Model)
