"""Render a cartoon face from its traits (faces.sample_traits).

Coordinates are in units of half a head: the head spans y in [-1, 1], down is positive, the eyes
are near y = 0. `Canvas` maps them to pixels. S: side of the picture; P: side of the canvas.
"""

from types import SimpleNamespace as Traits

import cv2
import numpy as np

_OVERSAMPLING = 2
_SUBPIXEL = 4  # bits of a pixel's fraction in OpenCV's drawing calls


class Canvas:
    """Draws on a (P, P, 3) uint8 image in face units."""

    def __init__(self, image: np.ndarray, traits: Traits):
        self.image, side = image, image.shape[0]
        self.unit = 0.36 * traits.scale * side  # pixels in half a head
        self.centre = (np.array([0.5, 0.52]) + traits.shift) * side
        angle = np.deg2rad(traits.tilt)
        cos, sin = np.cos(angle), np.sin(angle)
        self.turn = np.array([[cos, sin], [-sin, cos]])  # for row vectors

    def draw(self, points: np.ndarray, colour: np.ndarray, width: float = 0) -> None:
        """Draw an open line through `points` (K, 2), or fill their polygon if it has no width."""
        placed = np.asarray(points, float) @ self.turn * self.unit + self.centre
        path = [np.round(placed * 2**_SUBPIXEL).astype(np.int32)]
        style = {"color": colour.tolist(), "lineType": cv2.LINE_AA, "shift": _SUBPIXEL}
        if width:
            thickness = max(1, round(width * self.unit))
            cv2.polylines(self.image, path, False, thickness=thickness, **style)
        else:
            cv2.fillPoly(self.image, path, **style)

    def ellipse(
        self, x: float, y: float, rx: float, ry: float, colour: np.ndarray, width: float = 0
    ) -> None:
        t = np.linspace(0, 2 * np.pi, 25)
        self.draw(np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1), colour, width)


def render(traits: Traits, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the (S, S, 3) uint8 RGB picture; `rng` samples sensor noise and background."""
    image = _backdrop(traits, _OVERSAMPLING * size, rng)
    canvas = Canvas(image, traits)
    _body(canvas, traits)
    _head(canvas, traits)
    _skin_marks(canvas, traits)
    for x in (-1, 1):
        _eye(canvas, traits, x)
    _nose_and_mouth(canvas, traits)
    _hair(canvas, traits)
    image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
    return _photograph(image, traits, rng)


def arc(x0: float, x1: float, y: float, bend: float, points: int = 7) -> np.ndarray:
    """Return points (K, 2) from (x0, y) to (x1, y), the middle lowered by `bend`."""
    t = np.linspace(-1, 1, points)
    return np.stack([(x0 + x1) / 2 + (x1 - x0) / 2 * t, y + bend * (1 - t**2)], 1)


def _backdrop(traits: Traits, side: int, rng: np.random.Generator) -> np.ndarray:
    start, stop = traits.background
    ramp = np.linspace(0, 1, side, dtype=np.float32)[:, None, None]
    image = np.broadcast_to(start + ramp * (stop - start), (side, side, 3))
    image = np.ascontiguousarray(image, np.uint8)
    for _ in range(rng.integers(0, 4)):
        x, y = rng.integers(0, side, 2).tolist()
        radius = int(rng.uniform(0.05, 0.3) * side)
        colour = (image[y, x] + rng.normal(0, 25, 3)).tolist()
        cv2.circle(image, (x, y), radius, colour, -1)
    return cv2.blur(image, (side // 12, side // 12))


def _outline(traits: Traits, start: float, stop: float, grow: float = 1.0) -> np.ndarray:
    """Return points (K, 2) on the head's edge; angle 0 is its right end, pi / 2 the chin."""
    t = np.linspace(start, stop, 33)
    below = np.clip(np.sin(t), 0, 1)
    width = traits.width * (1 + 0.1 * traits.infant)
    taper = 1 - (0.30 - 0.12 * traits.infant) * below**2 + 0.10 * traits.sagging * below**3
    chin = 1 - 0.15 * traits.infant
    y = np.sin(t) * np.where(np.sin(t) > 0, chin, 1.0)
    return grow * np.stack([width * np.cos(t) * taper, y], 1)


def _body(canvas: Canvas, traits: Traits) -> None:
    if traits.long_hair:
        canvas.ellipse(0, 0.15, 1.12 * traits.width, 1.15 + 0.2 * traits.volume, traits.hair)
    shoulders = 1.5 - 0.5 * traits.infant
    canvas.ellipse(0, 1.95, shoulders, 0.85, traits.shirt)
    neck = 0.42 - 0.12 * traits.infant
    corners = np.array([[-neck, 0.5], [neck, 0.5], [1.15 * neck, 1.3], [-1.15 * neck, 1.3]])
    canvas.draw(corners, 0.82 * traits.skin)
    for y in np.linspace(0.98, 1.16, round(3 * min(traits.sagging, 1))):  # rings of the neck
        canvas.draw(arc(-neck, neck, y, 0.05), 0.68 * traits.skin, 0.03)


def _head(canvas: Canvas, traits: Traits) -> None:
    for x in (-1, 1):
        ear = 0.2 + 0.05 * traits.sagging
        canvas.ellipse(x * 1.02 * traits.width, 0.08, 0.11, ear, 0.88 * traits.skin)
    canvas.draw(_outline(traits, 0, 2 * np.pi), traits.skin)
    blush = traits.skin + np.array([14.0, -10.0, -8.0]) * (0.3 + traits.infant)
    for x in (-0.45, 0.45):
        canvas.ellipse(x + traits.yaw, 0.34, 0.17, 0.12, blush)
    if traits.beard:
        tone = traits.skin + traits.beard * (traits.hair - traits.skin)
        lower = _outline(traits, 0.08 * np.pi, 0.92 * np.pi)
        upper = arc(lower[-1, 0], lower[0, 0], 0.3, 0.06)
        canvas.draw(np.concatenate([lower, upper]), tone)


def _skin_marks(canvas: Canvas, traits: Traits) -> None:
    """Draw lines whose number and depth grow with `wrinkles`, and age spots."""
    w = min(traits.wrinkles, 1.2)
    line = traits.skin * (1 - 0.42 * min(w, 1))
    for y in np.linspace(-0.62, -0.38, round(4 * w)):  # forehead
        half = 0.3 + 0.18 * w
        canvas.draw(arc(traits.yaw - half, traits.yaw + half, y, -0.04), line, 0.03)
    for side in (-1, 1):
        for angle in np.linspace(-0.7, 0.7, round(3.4 * w)):  # crow's feet
            start = np.array([traits.yaw + side * 0.6, 0.0])
            reach = 0.18 * np.array([side * np.cos(angle), np.sin(angle)])
            canvas.draw(np.stack([start, start + reach]), line, 0.025)
        if w > 0.2:  # from the nose past the mouth
            x = np.array([0.2, 0.32, 0.38]) * side + traits.yaw
            canvas.draw(np.stack([x, [0.32, 0.45, 0.66]], 1), line, 0.03)
        if w > 0.65:  # hollow cheeks
            x = np.array([0.62, 0.5, 0.46]) * side + traits.yaw
            canvas.draw(np.stack([x, [0.25, 0.45, 0.62]], 1), line, 0.03)
        if traits.sagging > 0.25:  # bags under the eyes
            bag = traits.skin * (1 - 0.22 * min(traits.sagging, 1))
            x = side * 0.36 + traits.yaw
            canvas.draw(arc(x - 0.15, x + 0.15, 0.16, 0.07), bag, 0.045)
    for x, y in traits.spots:
        canvas.ellipse(x, y, 0.05, 0.04, traits.skin * np.array([0.78, 0.70, 0.66]))


def _eye(canvas: Canvas, traits: Traits, side: int) -> None:
    x = side * (0.36 + 0.02 * traits.infant) + traits.yaw
    y = 0.02 + 0.2 * traits.infant
    rx = 0.14 + 0.07 * traits.infant
    ry = (0.08 + 0.085 * traits.infant) * (1 - 0.4 * min(traits.sagging, 1))
    canvas.ellipse(x, y, rx, ry, np.array([238.0, 236.0, 232.0]))
    canvas.ellipse(x + 0.2 * traits.yaw, y, 0.8 * ry, 0.95 * ry, traits.iris)
    canvas.ellipse(x + 0.2 * traits.yaw, y, 0.42 * ry, 0.5 * ry, np.full(3, 15.0))
    lid = arc(x - 1.1 * rx, x + 1.1 * rx, y + 0.2 * ry, -1.15 * ry)
    canvas.draw(lid, 0.45 * traits.skin, 0.035 + 0.03 * traits.sagging)
    brow = arc(x - 1.3 * rx, x + 1.3 * rx, y - 0.17 - 0.05 * traits.infant, -0.06)
    tone = traits.hair + (0.6 * traits.infant) * (traits.skin - traits.hair)
    canvas.draw(brow, 0.85 * tone, 0.03 + 0.06 * traits.brow * (1 - 0.5 * traits.infant))
    if traits.glasses:
        frame = np.array([40.0, 36.0, 34.0])
        canvas.ellipse(x, y + 0.02, 0.25, 0.2, frame, 0.035)
        canvas.draw(np.array([[x - side * 0.25, y], [traits.yaw, y - 0.03]]), frame, 0.03)


def _nose_and_mouth(canvas: Canvas, traits: Traits) -> None:
    shade = 0.72 * traits.skin
    length = 0.30 - 0.12 * traits.infant + 0.06 * traits.sagging
    tip = 0.12 + 0.18 * traits.infant + length
    x = 1.25 * traits.yaw
    canvas.draw(np.array([[x + 0.04, tip - length], [x + 0.07, tip - 0.06]]), shade, 0.03)
    canvas.draw(arc(x - 0.11, x + 0.11, tip, 0.06), shade, 0.045)
    lips = traits.skin * np.array([0.80, 0.52, 0.52])
    y, half = 0.63 + 0.02 * traits.infant, 0.25 - 0.07 * traits.infant + 0.05 * traits.smile
    thick = 0.085 * (1 - 0.65 * min(traits.sagging, 1))
    mouth = arc(traits.yaw - half, traits.yaw + half, y, 0.14 * traits.smile)
    if traits.smile > 0.6:  # teeth
        upper = arc(traits.yaw + half, traits.yaw - half, y, 0.02)
        canvas.draw(np.concatenate([mouth, upper]), np.array([240.0, 236.0, 226.0]))
    canvas.draw(mouth, lips, max(thick, 0.03))


def _hair(canvas: Canvas, traits: Traits) -> None:
    """Fill the area between the head's edge, grown by the volume, and the hairline."""
    width = traits.width
    outer = _outline(traits, np.pi - 0.05, 2 * np.pi + 0.05, 1.03 + 0.13 * traits.volume)
    x = np.linspace(1.0, -1.0, 33) * width
    u = np.abs(x) / width
    top = -0.66 + 0.24 * traits.fringe
    line = top + (0.12 - top) * u**3.5
    corner = np.exp(-(((u - 0.5) / 0.25) ** 2))
    line = line - traits.receding * (0.34 * corner + 0.42 * (1 - u**4))
    edge = -np.sqrt(np.clip(1 - u**2, 0, 1))
    line = np.maximum(line, edge)  # where the hairline is past the skull, nothing grows
    if traits.receding > 0.75:  # only the sides are left
        for half in (outer[outer[:, 0] < -0.85 * width], outer[outer[:, 0] > 0.85 * width]):
            side = np.sign(half[0, 0])
            inner = np.array([[side * 0.90 * width, 0.15], [side * 0.78 * width, -0.35]])
            canvas.draw(np.concatenate([half, inner if side > 0 else inner[::-1]]), traits.hair)
        return
    canvas.draw(np.concatenate([outer, np.stack([x, line], 1)]), traits.hair)
    shine = np.minimum(1.12 * traits.hair + 8, 255)
    canvas.draw(arc(-0.45 * width, 0.15 * width, -0.86, -0.08), shine, 0.05)


def _photograph(image: np.ndarray, traits: Traits, rng: np.random.Generator) -> np.ndarray:
    """Apply light from one side, colour temperature, focus and sensor noise to (S, S, 3)."""
    size = image.shape[0]
    ramp = np.linspace(-0.5, 0.5, size, dtype=np.float32)
    slope = 1 + traits.light_slope[0] * ramp[None, :] + traits.light_slope[1] * ramp[:, None]
    image = image.astype(np.float32) * (slope[:, :, None] * traits.light.astype(np.float32))
    if traits.blur * size > 0.3:
        image = cv2.GaussianBlur(image, (0, 0), traits.blur * size)
    image = image + traits.noise * rng.standard_normal(image.shape, dtype=np.float32)
    return np.clip(np.round(image), 0, 255).astype(np.uint8)
