"""The blocks in which GGUF files hold numbers, and what each stands for.

Each function writes the numbers of some blocks, [block, weights] of float32, from their bytes,
[block, bytes]. Numbers are computed in float32 as ggml does: scale times integer, less the offset
where the kind has one.

Source: ggml's block structures (ggml-common.h, 2023-2025); OCP Microscaling Formats, version 1.0,
2023 (MXFP4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

SUPER = 256
"""Numbers in a block of the K kinds."""
PAIR = np.array([0, 4], np.uint8)[:, None]
FOURTHS = np.array([0, 2, 4, 6], np.uint8)[:, None]
BITS = np.arange(8, dtype=np.uint8)[:, None]
NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""What the four bits of IQ4 stand for, times the block's scale."""
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""What the four bits of MXFP4 stand for, times the block's power of two."""


def half(raw: Bytes, at: int) -> Floats:
    """The float16 number at byte `at` of each block, as float32 [block, 1]. raw: [block, byte]."""
    return np.ascontiguousarray(raw[:, at : at + 2]).view("<f2").astype(np.float32)


def nibbles(raw: Bytes, width: int) -> Bytes:
    """The four-bit numbers in bytes [block, byte]: of each `width` bytes first the low halves, then
    the high ones, [block, number]."""
    packed = np.ascontiguousarray(raw).reshape(len(raw), -1, width)
    # one operation over whole arrays for either half: twice as fast as both shifts at once
    halves = np.empty((len(raw), packed.shape[1], 2, width), np.uint8)
    np.bitwise_and(packed, 15, out=halves[:, :, 0])
    np.right_shift(packed, 4, out=halves[:, :, 1])
    return halves.reshape(len(raw), -1)


def _f32(raw: Bytes, out: Floats) -> None:
    """Write little-endian float32 numbers, one a block, to `out`. raw: bytes [block, byte]."""
    out[:] = raw.view("<f4")


def _f16(raw: Bytes, out: Floats) -> None:
    """Write little-endian float16 numbers, one a block, to `out`. raw: bytes [block, byte]."""
    out[:] = raw.view("<f2")


def _bf16(raw: Bytes, out: Floats) -> None:
    """Write little-endian bfloat16 numbers (the upper half of a float32), one a block, to `out`.
    raw: bytes [block, byte]."""
    np.left_shift(raw.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q4_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q4_0 blocks into `out`: 32 integers of four bits less 8, times a scale (float16)."""
    whole = nibbles(raw[:, 2:], 16)
    whole -= 8  # below 0 it is the same byte of a number with a sign
    out[:] = whole.view(np.int8)
    out *= half(raw, 0)


def _q4_1(raw: Bytes, out: Floats) -> None:
    """Unpack Q4_1 blocks into `out`: 32 integers of four bits, times a scale, plus an offset
    (float16 both).
    """
    out[:] = nibbles(raw[:, 4:], 16)
    out *= half(raw, 0)
    out += half(raw, 2)


def _fifth_bits(raw: Bytes) -> Bytes:
    """The 32 bits of each block's four bytes, the lowest first, each as 16 (set) or 0, to be added
    to four-bit numbers."""
    bits = np.unpackbits(np.ascontiguousarray(raw).reshape(-1), bitorder="little")
    return bits.reshape(len(raw), -1) << np.uint8(4)


def _q5_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q5_0 blocks into `out`: 32 integers of five bits less 16, times a scale (float16)."""
    whole = nibbles(raw[:, 6:], 16)
    whole |= _fifth_bits(raw[:, 2:6])
    whole -= 16  # below 0 it is the same byte of a number with a sign
    out[:] = whole.view(np.int8)
    out *= half(raw, 0)


def _q5_1(raw: Bytes, out: Floats) -> None:
    """Unpack Q5_1 blocks into `out`: 32 integers of five bits, times a scale, plus an offset
    (float16 both).
    """
    out[:] = nibbles(raw[:, 8:], 16) | _fifth_bits(raw[:, 4:8])
    out *= half(raw, 0)
    out += half(raw, 2)


def _q8_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q8_0 blocks into `out`: 32 signed integers of eight bits, times a scale (float16)."""
    out[:] = raw[:, 2:].view(np.int8)
    out *= half(raw, 0)


def _q2_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q2_K blocks into `out`: 256 integers of two bits; each 16 have a scale and an offset
    of four bits.
    """
    parts = out.reshape(len(raw), 16, 16)
    scales = raw[:, :16]
    parts[:] = ((raw[:, 16:80].reshape(len(raw), 2, 1, 32) >> FOURTHS) & 3).reshape(parts.shape)
    parts *= (half(raw, 80) * (scales & 15))[:, :, None]
    parts -= (half(raw, 82) * (scales >> 4))[:, :, None]


def _q3_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q3_K blocks into `out`: 256 integers of three bits, signed; each 16 have a scale of
    six bits.
    """
    parts = out.reshape(len(raw), 16, 16)
    count = len(raw)
    low = raw[:, 96:104]
    high = raw[:, 104:108]
    scales = ((low[:, None] >> PAIR) & 15).reshape(count, 16)
    scales = scales | ((high[:, None] >> FOURTHS) & 3).reshape(count, 16) << np.uint8(4)
    parts[:] = ((raw[:, 32:96].reshape(count, 2, 1, 32) >> FOURTHS) & 3).reshape(parts.shape)
    # a bit that is set takes the 4 away that is taken off all others
    parts -= (4 - 4 * ((raw[:, None, :32] >> BITS) & 1)).reshape(parts.shape)
    parts *= (half(raw, 108) * (scales.view(np.int8) - np.int8(32)))[:, :, None]


def _scale_k(raw: Bytes, parts: Floats) -> None:
    """Multiply and shift in place the eight parts of each Q4_K or Q5_K block in `parts` by its
    eight six-bit scales and offsets, which lie in twelve bytes of `raw`."""
    first, second, third = (
        np.ascontiguousarray(raw[:, at : at + 4]).view("<u4")[:, 0] for at in (4, 8, 12)
    )
    six = np.empty(
        (len(raw), 2, 2), "<u4"
    )  # four numbers in each: 1.2 times as fast over all as byte by byte
    for place, low, packed in ((0, first, third), (1, second, third >> 4)):
        np.bitwise_and(low, 0x3F3F3F3F, out=six[:, place, 0])
        six[:, place, 1] = packed & 0x0F0F0F0F | low >> 2 & 0x30303030
    scales, offsets = six.view(np.uint8).reshape(len(raw), 2, 8).swapaxes(0, 1)
    parts *= (half(raw, 0) * scales)[:, :, None]
    parts -= (half(raw, 2) * offsets)[:, :, None]


def _q4_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q4_K blocks into `out`: 256 integers of four bits; each 32 have a scale and an offset
    of six bits.
    """
    parts = out.reshape(len(raw), 4, 2, 32)
    packed = raw[:, 16:].reshape(len(raw), 4, 32)
    parts[:, :, 0] = packed & 15
    parts[:, :, 1] = packed >> 4
    _scale_k(raw, parts.reshape(len(raw), 8, 32))


def _q5_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q5_K blocks into `out`: 256 integers of five bits; each 32 have a scale and an offset
    of six bits.
    """
    parts = out.reshape(len(raw), 8, 32)
    high = (raw[:, None, 16:48] >> BITS) & 1
    parts[:] = nibbles(raw[:, 48:], 32).reshape(parts.shape) | high << np.uint8(4)
    _scale_k(raw, parts)


def _q6_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q6_K blocks into `out`: 256 integers of six bits less 32; each 16 have a scale of
    eight bits.
    """
    count = len(raw)
    low = raw[:, :128].reshape(count, 2, 2, 32)
    high = raw[:, 128:192].reshape(count, 2, 32)
    six = np.empty((count, 2, 4, 32), np.uint8)
    np.bitwise_and(low, 15, out=six[:, :, :2])
    np.right_shift(low, 4, out=six[:, :, 2:])
    for place, bits in enumerate((high << 4, high << 2, high, high >> 2)):
        six[:, :, place] |= bits & 48
    six -= 32  # below 0 it is the same byte of a number with a sign
    out[:] = six.view(np.int8).reshape(count, SUPER)
    parts = out.reshape(count, 16, 16)
    parts *= (half(raw, 208) * raw[:, 192:208].view(np.int8))[:, :, None]


def _iq4_nl(raw: Bytes, out: Floats) -> None:
    """Unpack IQ4_NL blocks into `out`: 32 numbers of a table of 16 (NONLINEAR), times a scale
    (float16).
    """
    np.take(NONLINEAR, nibbles(raw[:, 2:], 16), out=out, mode="clip")
    out *= half(raw, 0)


def _iq4_xs(raw: Bytes, out: Floats) -> None:
    """Unpack IQ4_XS blocks into `out`: 256 numbers of a table of 16 (NONLINEAR); each 32 have a
    scale of six bits.
    """
    count = len(raw)
    high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (raw[:, 4:8, None] >> PAIR[:, 0] & 15).reshape(count, 8)
    scales = (low | high.astype(np.uint8) << np.uint8(4)).view(np.int8) - np.int8(32)
    np.take(NONLINEAR, nibbles(raw[:, 8:], 16), out=out, mode="clip")
    parts = out.reshape(count, 8, 32)
    parts *= (half(raw, 0) * scales)[:, :, None]


def _mxfp4(raw: Bytes, out: Floats) -> None:
    """Unpack MXFP4 blocks into `out`: 32 numbers of four bits (E2M1) and the power of two, one
    byte, that they share."""
    np.take(E2M1, nibbles(raw[:, 1:], 16), out=out, mode="clip")
    out *= np.ldexp(np.float32(1), raw[:, :1].astype(np.int32) - 127)


class BlockKind(Struct, frozen=True):
    """A format of quantised weights. weights: numbers in one block. bytes: its size. unpack: writes
    the numbers of blocks."""

    name: str
    weights: int
    bytes: int
    unpack: Callable[[Bytes, Floats], None]

    def numbers(self, raw: Bytes) -> Floats:
        """The numbers of some blocks, float32 [number], from their bytes, [byte]."""
        out = np.empty((raw.size // self.bytes, self.weights), np.float32)
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # what is not finite is told by whoever reads the tensor
            self.unpack(raw.reshape(-1, self.bytes), out)
        return out.reshape(-1)


BLOCKS = {
    0: BlockKind("F32", 1, 4, _f32),
    1: BlockKind("F16", 1, 2, _f16),
    2: BlockKind("Q4_0", 32, 18, _q4_0),
    3: BlockKind("Q4_1", 32, 20, _q4_1),
    6: BlockKind("Q5_0", 32, 22, _q5_0),
    7: BlockKind("Q5_1", 32, 24, _q5_1),
    8: BlockKind("Q8_0", 32, 34, _q8_0),
    10: BlockKind("Q2_K", SUPER, 84, _q2_k),
    11: BlockKind("Q3_K", SUPER, 110, _q3_k),
    12: BlockKind("Q4_K", SUPER, 144, _q4_k),
    13: BlockKind("Q5_K", SUPER, 176, _q5_k),
    14: BlockKind("Q6_K", SUPER, 210, _q6_k),
    20: BlockKind("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockKind("IQ4_XS", SUPER, 136, _iq4_xs),
    30: BlockKind("BF16", 1, 2, _bf16),
    39: BlockKind("MXFP4", 32, 17, _mxfp4),
}
"""Every kind by its number in the format."""
