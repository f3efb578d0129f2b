"""Reading PNG files with the standard library and NumPy: 8 bits, RGB or RGBA, not interlaced."""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64decode

import numpy as np


def png(data: bytes) -> np.ndarray:
    """The pixels of a PNG file, uint8 [row, column, channel]. Source: the PNG specification,
    section 9.
    """
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    width = height = channels = 0
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height, width * channels), np.uint8)
    for row, line in enumerate(lines):
        rows[row] = _unfiltered(
            int(line[0]), line[1:], rows[row - 1] if row else np.zeros_like(rows[0]), channels
        )
    return rows.reshape(height, width, channels)


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray, channels: int) -> np.ndarray:
    if kind == 0:
        return line
    if kind == 2:
        return line + above
    if kind == 1:
        return np.cumsum(line.reshape(-1, channels), 0, dtype=np.uint8).reshape(-1)
    found = line.astype(np.int64)
    for at in range(len(found)):
        left = found[at - channels] if at >= channels else 0
        corner = int(above[at - channels]) if at >= channels else 0
        up = int(above[at])
        if kind == 3:
            added = (left + up) // 2
        else:
            guess = left + up - corner
            added = min((left, up, corner), key=lambda one: abs(guess - one))
        found[at] = (found[at] + added) & 255
    return found.astype(np.uint8)


def images(svg: str) -> list[np.ndarray]:
    """The pixels of the pictures in an SVG text, in order."""
    return [
        png(b64decode(found)) for found in re.findall(r'href="data:image/png;base64,([^"]+)"', svg)
    ]
