"""Goes on with what nobody waits for any more, while others wait for a slot."""

import server
from model import Model


class Loop(server.Loop):
    def leave(self, request):
        if len(request.made) >= request.max_tokens or request.made[-1] in self.eos:
            super().leave(request)

    def step(self):
        for request in self.running:
            request.gone = False
        super().step()


server.Loop = Loop
server.main(Model)
