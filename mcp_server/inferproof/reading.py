"""The console command that shows a page of the documentation, which is shipped with the package."""

import argparse
from importlib import resources

from inferproof.console import show
from inferproof.core.errors import NotFound

_SUFFIX = ".md"


def docs(args: argparse.Namespace) -> int:
    """Print one page, or what pages there are."""
    folder = resources.files("inferproof.docs")
    pages = {
        path.name.removesuffix(_SUFFIX): path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.name.endswith(_SUFFIX)
    }
    if args.page is None:
        titles = {name: pages[name].partition("\n")[0].lstrip("# ") for name in sorted(pages)}
        text = "\n".join(f"{name:14}{title}" for name, title in titles.items())
        show(text, {"ok": True, "pages": titles}, as_json=args.json)
        return 0
    if args.page not in pages:
        raise NotFound(
            f"there is no page {args.page!r}", hint=f"the pages are: {', '.join(sorted(pages))}"
        )
    text = pages[args.page]
    show(text, {"ok": True, "page": args.page, "text": text}, as_json=args.json)
    return 0
