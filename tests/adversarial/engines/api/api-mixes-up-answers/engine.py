"""Gives a caller the answer to another prompt, when more than twenty wait."""

import server
from model import Model


class Loop(server.Loop):
    def admit(self, request):
        if self.waiting.qsize() > 20 and self.running:
            request.ids = list(self.running[-1].ids)
        super().admit(request)


server.Loop = Loop
server.main(Model)
