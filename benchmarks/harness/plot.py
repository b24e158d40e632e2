"""Draw lines on two logarithmic axes as SVG, with the standard library alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 30, 50
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")

Points = Sequence[tuple[float, float]]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def log_log(title: str, x_label: str, series: Mapping[str, Points]) -> str:
    """Return an SVG of the series (label to positive points), one colour each, on decades of both axes."""
    every = [point for points in series.values() for point in points]
    (x0, x1), (y0, y1) = _decades([x for x, _ in every]), _decades([y for _, y in every])

    def across(x: float) -> float:
        return _LEFT + (math.log10(x) - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(y) - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{title}</text>',
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">{x_label}</text>',
    ]
    for power in range(x0, x1 + 1):
        at = across(10.0**power)
        out.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(y0, y1 + 1):
        at = down(10.0**power)
        out.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for i, (label, points) in enumerate(series.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        out.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{_TOP + 14 + 20 * i}" fill="{colour}">{label}</text>')
    return "\n".join([*out, "</svg>", ""])
