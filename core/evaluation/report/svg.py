"""Plots that can be read by day and by night."""

INK, GRID, PAPER = "#1f2328", "#d1d9e0", "#ffffff"
"""Text and axes, lines behind them, and what is under them, by day."""

_BY_NIGHT = {INK: "#e6edf3", GRID: "#3d444d", PAPER: "#0d1117"}

DARK_STYLE = (
    "@media (prefers-color-scheme: dark) {\n"
    + "".join(
        f'svg [style*="{kind}: {day}"] {{ {kind}: {night} !important; }}\n'
        for day, night in _BY_NIGHT.items()
        for kind in ("fill", "stroke")
    )
    + "}\n"
)
"""A style sheet that turns what plots draw in these colours to those of the night."""


def alone(svg: str) -> str:
    """A plot as a file of its own, which brings the style sheet."""
    start = svg.index(">", svg.index("<svg")) + 1
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:start]}<style>{DARK_STYLE}</style>'
        f"{svg[start:]}\n"
    )


def inline(svg: str) -> str:
    """A plot as a part of a page: from its own element on."""
    return svg[svg.index("<svg") :].rstrip()
