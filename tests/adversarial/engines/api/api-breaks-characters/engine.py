"""Streams each token's text by itself, so that a character of two tokens comes as two marks."""

import server
from model import Model


def pieces(request, tokenizer):
    for token, row, new, finish in honest(request, tokenizer):
        yield token, row, new if request.stop else tokenizer.decode([token]), finish


honest, server.pieces = server.pieces, pieces
server.main(Model)
