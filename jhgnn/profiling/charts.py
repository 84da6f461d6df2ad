"""Charts as SVG text: they take their colours from the page's CSS variables, so they follow light and dark."""

import html
import math
from collections.abc import Mapping, Sequence

COLOURS = {"FP": "--fp", "NA": "--na", "SF": "--sf", "LC": "--lc", "PU": "--pu", "DM": "--fp", "TB": "--na"} | {
    "EW": "--sf", "DR": "--lc", "idle": "--idle", "host": "--host", "other": "--idle",
}  # fmt: skip
OPACITY = {"forward": 1.0, "backward": 0.62, "recompute": 0.35, "update": 1.0, "none": 1.0}
WIDTH = 720


def colour(name: str) -> str:
    """A CSS colour for a stage, a kernel type or a host part."""
    return f"var({COLOURS.get(name, '--host')})"


def bars(rows: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], unit: str, scale: float, title: str) -> str:
    """Stacked horizontal bars: (label, [(colour name, direction, value)]) a row, to one scale, the total at the end."""
    largest = max((sum(value for *_, value in parts) for _, parts in rows), default=0.0) or 1.0
    left, right, height = 150, 150, 26
    room = WIDTH - left - right
    body = []
    for index, (label, parts) in enumerate(rows):
        y = 6 + index * height
        body.append(_text(left - 8, y + 14, label, anchor="end"))
        x = float(left)
        for name, direction, value in parts:
            width = room * value / largest
            tip = f"{label}: {name} {direction} {value * scale:,.3f} {unit}"
            body.append(
                f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.0):.2f}" height="18" fill="{colour(name)}"'
                f' fill-opacity="{OPACITY.get(direction, 1.0)}"><title>{html.escape(tip)}</title></rect>'
            )
            x += width
        total = sum(value for *_, value in parts)
        body.append(_text(x + 6, y + 14, f"{total * scale:,.2f} {unit}"))
    return _svg(12 + height * len(rows), body, title)


def roofline(points: Sequence[tuple[str, str, float, float, float]], ceilings: Mapping[str, float]) -> str:
    """Log-log: (stage, direction, FLOP/byte, FLOP/s, seconds) as circles under the measured ceilings."""
    points = [point for point in points if point[2] > 0 and point[3] > 0]
    peak, bandwidth = ceilings["matmul_flops_per_s"], ceilings["copy_bytes_per_s"]
    ridge = peak / bandwidth
    low_x = math.floor(math.log10(min([0.05, *(point[2] for point in points)])))
    high_x = math.ceil(math.log10(max([ridge * 4, *(point[2] for point in points)])))
    low_y = math.floor(math.log10(min([peak / 1e3, *(point[3] for point in points)])))
    high_y = math.ceil(math.log10(max([peak * 1.5, *(point[3] for point in points)])))
    left, top, right, bottom = 64, 14, 16, 44
    height = 360

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = left + (math.log10(intensity) - low_x) / (high_x - low_x) * (WIDTH - left - right)
        y = top + (high_y - math.log10(rate)) / (high_y - low_y) * (height - top - bottom)
        return x, y

    body = []
    for power in range(low_x, high_x + 1):
        x, _ = at(10.0**power, 10.0**low_y)
        body.append(_line(x, top, x, height - bottom, "grid"))
        body.append(_text(x, height - bottom + 16, _power(power), anchor="middle", small=True))
    for power in range(low_y, high_y + 1):
        _, y = at(10.0**low_x, 10.0**power)
        body.append(_line(left, y, WIDTH - right, y, "grid"))
        body.append(_text(left - 6, y + 4, _power(power - 9), anchor="end", small=True))
    start = max(10.0**low_x, 10.0**low_y / bandwidth)
    body.append(_line(*at(start, start * bandwidth), *at(ridge, peak), "roof"))
    body.append(_line(*at(ridge, peak), *at(10.0**high_x, peak), "roof"))
    x, y = at(ridge, peak)
    body.append(
        _text(x - 6, y - 6, f"{peak / 1e9:,.0f} GFLOP/s, {bandwidth / 1e9:,.1f} GB/s", anchor="end", small=True)
    )
    slowest = max((point[4] for point in points), default=1.0)
    for stage, direction, intensity, rate, seconds in sorted(points, key=lambda point: -point[4]):
        x, y = at(intensity, rate)
        radius = 4 + 12 * math.sqrt(seconds / slowest)
        tip = f"{stage} {direction}: {intensity:.2f} FLOP/byte, {rate / 1e9:.2f} GFLOP/s, {seconds * 1e3:.3f} ms"
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour(stage)}"'
            f' fill-opacity="{OPACITY.get(direction, 1.0)}" stroke="var(--ink)"><title>{html.escape(tip)}</title>'
            "</circle>"
        )
        short = {"forward": "fwd", "backward": "bwd", "recompute": "rec", "update": ""}.get(direction, "")
        # Labels of the backward pass go below the circle: the two passes of a stage often lie side by side.
        below = direction != "forward"
        inside = min(max(x, left + 24), WIDTH - right - 24)
        away = radius + 13 if below else -radius - 5
        body.append(_text(inside, y + away, f"{stage} {short}".strip(), anchor="middle", small=True))
    body.append(_text(WIDTH / 2, height - 6, "arithmetic intensity, FLOP / byte", anchor="middle", small=True))
    body.append(_text(left + 6, 12, "GFLOP/s", small=True))
    return _svg(height, body, "Roofline with measured ceilings")


def scatter(points: Sequence[tuple[str, float, float]], x_label: str, y_unit: str, title: str) -> str:
    """Log-log: (label, x, y) as circles with their labels; points without a positive place are left out."""
    points = [point for point in points if point[1] > 0 and point[2] > 0]
    left, top, right, bottom, height = 64, 14, 90, 44, 380
    bounds = []
    for axis_values in ([x for _, x, _ in points], [y for _, _, y in points]):
        values = [math.log10(value) for value in axis_values] or [0.0]
        bounds.append((math.floor(min(values) * 2 - 0.2) / 2, math.ceil(max(values) * 2 + 0.2) / 2))
    (low_x, high_x), (low_y, high_y) = bounds

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / (high_x - low_x) * (WIDTH - left - right)
        return left + across, top + (high_y - math.log10(y)) / (high_y - low_y) * (height - top - bottom)

    body = []
    for step in range(round((high_x - low_x) * 2) + 1):
        x, _ = at(10 ** (low_x + step / 2), 10**low_y)
        body.append(_line(x, top, x, height - bottom, "grid"))
        body.append(_text(x, height - bottom + 16, f"{10 ** (low_x + step / 2):,.3g}", anchor="middle", small=True))
    for step in range(round((high_y - low_y) * 2) + 1):
        _, y = at(10**low_x, 10 ** (low_y + step / 2))
        body.append(_line(left, y, WIDTH - right, y, "grid"))
        body.append(_text(left - 6, y + 4, f"{10 ** (low_y + step / 2):,.3g}", anchor="end", small=True))
    for label, x_value, y_value in points:
        x, y = at(x_value, y_value)
        tip = html.escape(f"{label}: {x_value:,.1f}, {y_value:,.2f} {y_unit}")
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="var(--na)"><title>{tip}</title></circle>')
        body.append(_text(x + 7, y - 5, label, small=True))
    body.append(_text(WIDTH / 2, height - 6, x_label, anchor="middle", small=True))
    body.append(_text(left + 6, 12, y_unit, small=True))
    return _svg(height, body, title)


def memory(program: Mapping[str, object], highest: float, title: str) -> str:
    """Live temporary bytes over the schedule, stacked by stage, with a strip of the stage that runs below."""
    line = program["timeline"]
    assert isinstance(line, Mapping)
    stages: list[str] = line["stage"]
    series: dict[str, list[int]] = line["live_bytes"]
    left, top, right, bottom, height = 64, 12, 12, 44, 240
    room = WIDTH - left - right
    steps = max(1, len(stages))

    def y_of(value: float) -> float:
        return height - bottom - (height - top - bottom) * value / (highest or 1.0)

    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = y_of(highest * share)
        body.append(_line(left, y, WIDTH - right, y, "grid"))
        body.append(_text(left - 6, y + 4, f"{highest * share / 1e6:,.1f}", anchor="end", small=True))
    base = [0.0] * steps
    for key in sorted(series):
        values = series[key]
        if not any(values):
            continue
        stage, _, direction = key.partition(".")
        above = [low + value for low, value in zip(base, values, strict=True)]
        xs = [left + room * at / steps for at in range(steps + 1)]
        forth, back = [], []
        for at in range(steps):
            forth += [f"{xs[at]:.1f},{y_of(above[at]):.1f}", f"{xs[at + 1]:.1f},{y_of(above[at]):.1f}"]
            back += [f"{xs[at]:.1f},{y_of(base[at]):.1f}", f"{xs[at + 1]:.1f},{y_of(base[at]):.1f}"]
        forth += reversed(back)
        body.append(
            f'<polygon points="{" ".join(forth)}" fill="{colour(stage)}"'
            f' fill-opacity="{OPACITY.get(direction, 1.0)}"><title>{html.escape(key)}</title></polygon>'
        )
        base = above
    start = 0
    for at in range(1, steps + 1):
        if at == steps or stages[at] != stages[start]:
            stage, _, direction = stages[start].partition(".")
            body.append(
                f'<rect x="{left + room * start / steps:.1f}" y="{height - bottom + 6}"'
                f' width="{room * (at - start) / steps:.1f}" height="10" fill="{colour(stage)}"'
                f' fill-opacity="{OPACITY.get(direction, 1.0)}"><title>{html.escape(stages[start])}</title></rect>'
            )
            start = at
    body.append(
        _text(WIDTH / 2, height - 8, "position in the schedule; the strip shows the stage that runs", "middle", True)
    )
    body.append(_text(left + 6, 12, "MB", small=True))
    return _svg(height, body, title)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 < power < 5 else f"1e{power}"


def _text(x: float, y: float, text: str, anchor: str = "start", small: bool = False) -> str:
    kind = ' class="small"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _svg(height: float, body: Sequence[str], title: str) -> str:
    label = html.escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}">{"".join(body)}</svg>'
