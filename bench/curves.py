"""Curves with logarithmic axes as a small SVG, readable in a light and in a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Curve", "curves"]

_WIDTH: Final = 320
_HEIGHT: Final = 240
_LEFT: Final = 52
_TOP: Final = 34
_RIGHT: Final = 14
_BOTTOM: Final = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One picture.

    Args:
        title: What grows, and its unit.
        x: Numbers of objects.
        y: What they cost.
    """

    title: str
    x: Sequence[float]
    y: Sequence[float]


def curves(pictures: Sequence[Curve]) -> str:
    """The pictures two by two. A dashed line shows what growth in proportion would be."""
    rows = math.ceil(len(pictures) / 2)
    box = f"0 0 {2 * _WIDTH} {rows * _HEIGHT}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="11" fill="#777">'
    ]
    for number, picture in enumerate(pictures):
        place = f"translate({_WIDTH * (number % 2)},{_HEIGHT * (number // 2)})"
        parts += [f'<g transform="{place}">', *_picture(picture), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _picture(curve: Curve) -> list[str]:
    low, high = _decades(curve.y)
    left, right = math.log10(curve.x[0]), math.log10(curve.x[-1])

    def across(value: float) -> float:
        return _LEFT + (math.log10(value) - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<text x="{_LEFT}" y="20" font-size="13">{curve.title}</text>']
    for power in range(low, high + 1):
        y = up(10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#8884"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    parts += [
        f'<text x="{across(value):.1f}" y="{_HEIGHT - 14}" text-anchor="middle">{value:,.0f}</text>'
        for value in curve.x
    ]
    end = min(curve.x[-1], curve.x[0] * 10.0**high / curve.y[0])
    straight = (
        f"M{across(curve.x[0]):.1f} {up(curve.y[0]):.1f}L{across(end):.1f} {up(curve.y[0] * end / curve.x[0]):.1f}"
    )
    parts.append(f'<path d="{straight}" stroke="#888" stroke-dasharray="4 4" fill="none"/>')
    points = [f"{across(x):.1f} {up(y):.1f}" for x, y in zip(curve.x, curve.y, strict=True)]
    parts.append(f'<path d="M{"L".join(points)}" stroke="#2a7de1" stroke-width="2" fill="none"/>')
    for x, y in zip(curve.x, curve.y, strict=True):
        parts.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="#2a7de1"/>')
        parts.append(f'<text x="{across(x):.1f}" y="{up(y) - 8:.1f}" text-anchor="middle">{y:.3g}</text>')
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
