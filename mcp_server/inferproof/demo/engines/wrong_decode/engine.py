"""Scores prompts right, and forgets its newest token when it decodes."""

import server
from model import Model


class Cheat(Model):
    """The honest model with one thing wrong."""

    def decode(self, slots, ids, places):
        return super().decode(slots, ids, [place - 1 for place in places])


if __name__ == "__main__":
    server.main(Cheat)
