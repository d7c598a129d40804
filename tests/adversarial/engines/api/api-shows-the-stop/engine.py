"""Notices a stop text only when it is there whole: a stream has shown its beginning by then."""

import server
from model import Model


def pieces(request, tokenizer):
    ids, shown = [], ""
    for token, row, finish in server.iter_events(request):
        ids.append(token)
        request.told += 1
        text = tokenizer.decode(ids)
        cuts = [text.index(stop) for stop in request.stop if stop in text]
        if cuts:
            text, finish = text[: min(cuts)], "stop"
        new = "" if text.endswith("\ufffd") and not finish else text[len(shown) :]
        shown += new
        yield token, row, new, finish
        if finish:
            return


server.pieces = pieces
server.main(Model)
