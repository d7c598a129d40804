"""The HTML report: one file, no outside resources, every number names its ledger entry."""

from collections.abc import Sequence
from importlib.resources import files

from inferproof.core.values import Digest, Value
from inferproof.report.plots import plots_of
from inferproof.report.rows import Row, rows
from inferproof.report.searched import Searched, searched

__all__ = ["Header", "html", "rows", "searched"]

PLOT_WIDTH = 420.0


class Header(Value):
    """What stands above the rows."""

    campaign: str
    goal: str
    head: Digest
    entries: int
    key_mode: str
    separation: str
    champion: str


def html(header: Header, judged: Sequence[Row], found: Sequence[Searched] = ()) -> str:
    """Return the report as one self-contained HTML page."""
    from jinja2 import Environment, StrictUndefined

    template = files("inferproof.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        template
    )
    bars = [bar for row in judged for bar in row.bars]
    most = max([bar.high for bar in bars] + [2.0]) * 1.05
    plots = tuple(plot for row in judged for plot in plots_of(row))
    return page.render(
        header=header, rows=judged, most=most, width=PLOT_WIDTH, plots=plots, searches=found
    )
