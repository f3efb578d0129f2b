"""The blocks in which GGUF files hold numbers, and what each stands for.

Each function writes the integers of some blocks times their scales, [block, weights] of float32,
from their bytes, [block, bytes], and returns what is to be added to each group of them, [block,
group], where the kind has such offsets. Numbers are computed in float32 as ggml does: scale times
integer, less the offset. A product with vectors adds the offsets once for each group instead.

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
"""How far a byte is shifted to the right for each of its halves, its fourths, its bits."""
NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""What the four bits of IQ4 stand for, times the block's scale."""
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""What the four bits of MXFP4 stand for, times the block's power of two."""


def half(raw: Bytes, at: int) -> Floats:
    """The float16 number at byte `at` of each block, as float32 [block, 1].

    raw: [block, byte].
    """
    # a view, not a copy of two bytes a block: 0.07 against 0.25 ns a weight in blocks of 32
    return raw[:, at : at + 2].view("<f2").astype(np.float32)


def items(raw: Bytes, width: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """Bytes [block, byte] side by side, as items of `width` bytes, [block, item].

    NumPy takes 10 ns for each short run of bytes, and 1 ns where the run is one item.
    """
    return raw.view(f"V{width}").copy()


def nibbles(raw: Bytes, width: int) -> Bytes:
    """The four-bit numbers in bytes [block, byte]: of each `width` bytes first the low halves, then
    the high ones, [block, number]."""
    packed = items(raw, width)
    halves = np.empty((*packed.shape, 2), packed.dtype)
    halves[:, :, 0] = (packed.view(np.uint8) & np.uint8(15)).view(packed.dtype)
    halves[:, :, 1] = (packed.view(np.uint8) >> np.uint8(4)).view(packed.dtype)
    return halves.view(np.uint8).reshape(len(raw), -1)


def shift_bits(raw: Bytes, bits: int) -> Bytes:
    """Bytes shifted to the left by as many bits, to the right by negative ones."""
    if bits < 0:
        return raw >> np.uint8(-bits)
    return raw << np.uint8(bits)


def _f32(raw: Bytes, out: Floats) -> None:
    """Write little-endian float32 numbers, one a block, to `out`.

    raw: bytes [block, byte].
    """
    out[:] = raw.view("<f4")


def _f16(raw: Bytes, out: Floats) -> None:
    """Write little-endian float16 numbers, one a block, to `out`.

    raw: bytes [block, byte].
    """
    out[:] = raw.view("<f2")


def _bf16(raw: Bytes, out: Floats) -> None:
    """Write little-endian bfloat16 numbers (the upper half of a float32), one a block, to `out`.

    raw: bytes [block, byte].
    """
    np.left_shift(raw.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q4_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q4_0 blocks, [block, byte], into `out`, [block, number]: 32 integers of four bits
    less 8, times a scale (float16)."""
    whole = nibbles(raw[:, 2:], 16)
    whole -= 8  # below 0 it is the same byte of a number with a sign
    out[:] = whole.view(np.int8)
    out *= half(raw, 0)


def _q4_1(raw: Bytes, out: Floats) -> Floats:
    """Unpack Q4_1 blocks, [block, byte], into `out`, [block, number]: 32 integers of four bits,
    times a scale, plus an offset (float16 both). Returns the offsets, [block, group]."""
    out[:] = nibbles(raw[:, 4:], 16)
    out *= half(raw, 0)
    return half(raw, 2)


def _fifth_bits(raw: Bytes) -> Bytes:
    """The 32 bits of each block's four bytes, the lowest first, each as 16 (set) or 0, to be added
    to four-bit numbers."""
    packed = items(raw, 4).view(np.uint8)
    bits = np.unpackbits(packed.reshape(-1), bitorder="little")
    bits <<= 4
    return bits.reshape(len(raw), -1)


def _q5_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q5_0 blocks, [block, byte], into `out`, [block, number]: 32 integers of five bits
    less 16, times a scale (float16)."""
    whole = nibbles(raw[:, 6:], 16)
    whole |= _fifth_bits(raw[:, 2:6])
    whole -= 16  # below 0 it is the same byte of a number with a sign
    out[:] = whole.view(np.int8)
    out *= half(raw, 0)


def _q5_1(raw: Bytes, out: Floats) -> Floats:
    """Unpack Q5_1 blocks, [block, byte], into `out`, [block, number]: 32 integers of five bits,
    times a scale, plus an offset (float16 both). Returns the offsets, [block, group]."""
    whole = nibbles(raw[:, 8:], 16)
    whole |= _fifth_bits(raw[:, 4:8])
    out[:] = whole
    out *= half(raw, 0)
    return half(raw, 2)


def _q8_0(raw: Bytes, out: Floats) -> None:
    """Unpack Q8_0 blocks, [block, byte], into `out`, [block, number]: 32 signed integers of
    eight bits, times a scale (float16)."""
    out[:] = raw[:, 2:].view(np.int8)
    out *= half(raw, 0)


def _q2_k(raw: Bytes, out: Floats) -> Floats:
    """Unpack Q2_K blocks, [block, byte], into `out`, [block, number]: 256 integers of two bits;
    each 16 have a scale and an offset of four bits. Returns the offsets, [block, group]."""
    parts = out.reshape(len(raw), 16, 16)  # [block, group, number]
    scales = raw[:, :16]  # of each group the scale in the low four bits, the offset in the high
    # 64 bytes hold twice four rows of 32 numbers, each row two bits further up in the same bytes
    parts[:] = ((raw[:, 16:80].reshape(len(raw), 2, 1, 32) >> FOURTHS) & 3).reshape(parts.shape)
    parts *= (half(raw, 80) * (scales & 15))[:, :, None]
    return -(half(raw, 82) * (scales >> 4))


def _q3_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q3_K blocks, [block, byte], into `out`, [block, number]: 256 integers of three
    bits, signed; each 16 have a scale of six bits."""
    parts = out.reshape(len(raw), 16, 16)  # [block, group, number]
    count = len(raw)
    # 16 scales of six bits: four low bits each in eight bytes, two high ones each in four bytes
    low = raw[:, 96:104]
    high = raw[:, 104:108]
    # shifted by 0 and 4 (`PAIR`), by 0, 2, 4 and 6 (`FOURTHS`) and by 0 to 7 (`BITS`), bytes give
    # their halves, fourths and single bits along an axis of their own
    scales = ((low[:, None] >> PAIR) & 15).reshape(count, 16)
    scales = scales | ((high[:, None] >> FOURTHS) & 3).reshape(count, 16) << np.uint8(4)
    # the two low bits of each number, four numbers in a byte
    parts[:] = ((raw[:, 32:96].reshape(count, 2, 1, 32) >> FOURTHS) & 3).reshape(parts.shape)
    # the third bit lies in 32 bytes of its own: where it is not set, 4 is subtracted
    parts -= (4 - 4 * ((raw[:, None, :32] >> BITS) & 1)).reshape(parts.shape)
    # scales are stored as numbers from 0 on, 32 more than they are; byte 108 has the block's own
    parts *= (half(raw, 108) * (scales.view(np.int8) - np.int8(32)))[:, :, None]


def _scale_k(raw: Bytes, parts: Floats) -> Floats:
    """Multiply the eight groups of each Q4_K or Q5_K block in `parts`, [block, group, number], by
    their scales, in place, and return their offsets, [block, group].

    Scales and offsets have six bits each and lie in bytes 4 to 15 of each block in `raw`, [block,
    byte].
    """
    first, second, third = (
        np.ascontiguousarray(raw[:, at : at + 4]).view("<u4")[:, 0] for at in (4, 8, 12)
    )
    # [block, scales or offsets, groups 0-3 or 4-7], four numbers in each integer of 32 bits, which
    # is 1.2 times as fast over all as byte by byte
    six = np.empty((len(raw), 2, 2), "<u4")
    # groups 0-3 have their six bits in one byte; groups 4-7 have four bits in the third integer,
    # and their upper two at the top of the bytes of groups 0-3
    for place, low, packed in ((0, first, third), (1, second, third >> 4)):
        np.bitwise_and(low, 0x3F3F3F3F, out=six[:, place, 0])  # the low six bits of each byte
        six[:, place, 1] = packed & 0x0F0F0F0F | low >> 2 & 0x30303030  # four low, two high bits
    scales, offsets = six.view(np.uint8).reshape(len(raw), 2, 8).swapaxes(0, 1)
    # bytes 0 and 2 hold what all scales, and all offsets, of a block are multiplied by
    parts *= (half(raw, 0) * scales)[:, :, None]
    return -(half(raw, 2) * offsets)


def _q4_k(raw: Bytes, out: Floats) -> Floats:
    """Unpack Q4_K blocks, [block, byte], into `out`, [block, number]: 256 integers of four
    bits; each 32 have a scale and an offset of six bits. Returns the offsets, [block, group]."""
    out[:] = nibbles(raw[:, 16:], 32)
    return _scale_k(raw, out.reshape(len(raw), 8, 32))


def _q5_k(raw: Bytes, out: Floats) -> Floats:
    """Unpack Q5_K blocks, [block, byte], into `out`, [block, number]: 256 integers of five
    bits; each 32 have a scale and an offset of six bits. Returns the offsets, [block, group]."""
    whole = nibbles(raw[:, 48:], 32)  # the low four bits; rows of 32 numbers, each a group
    # bit g of 32 bytes is the fifth bit of the numbers of group g; it is moved to the place of 16
    high = items(raw[:, 16:48], 32).view(np.uint8)
    fifth = np.empty((len(raw), 8), "V32")
    for place in range(8):
        fifth[:, place : place + 1] = (shift_bits(high, 4 - place) & np.uint8(16)).view("V32")
    whole |= fifth.view(np.uint8)
    out[:] = whole
    return _scale_k(raw, out.reshape(len(raw), 8, 32))


def _q6_k(raw: Bytes, out: Floats) -> None:
    """Unpack Q6_K blocks, [block, byte], into `out`, [block, number]: 256 integers of six bits
    less 32; each 16 have a scale of eight bits."""
    count = len(raw)
    low = items(raw[:, :128], 32).reshape(count, 2, 2).view(np.uint8)
    high = items(raw[:, 128:192], 32).view(np.uint8)
    # of each half of a block four rows of 32 numbers: the low four bits of rows 0 and 1, then of
    # rows 2 and 3 in the high halves of the same bytes; the upper two bits of all four in `high`
    six = np.empty((count, 2, 4), "V32")
    six[:, :, :2] = (low & np.uint8(15)).view("V32")
    six[:, :, 2:] = (low >> np.uint8(4)).view("V32")
    upper = np.empty((count, 2, 4), "V32")
    for place in range(4):  # the two bits of row `place` are moved to those of 16 and 32
        upper[:, :, place] = (shift_bits(high, 4 - 2 * place) & np.uint8(48)).view("V32")
    whole = six.view(np.uint8)
    whole |= upper.view(np.uint8)
    whole -= 32  # below 0 it is the same byte of a number with a sign
    out[:] = whole.view(np.int8).reshape(count, SUPER)
    parts = out.reshape(count, 16, 16)  # [block, group, number]
    # a scale for each group, times the block's own in byte 208
    parts *= (half(raw, 208) * raw[:, 192:208].view(np.int8))[:, :, None]


def _iq4_nl(raw: Bytes, out: Floats) -> None:
    """Unpack IQ4_NL blocks, [block, byte], into `out`, [block, number]: 32 numbers of a table
    of 16 (NONLINEAR), times a scale (float16)."""
    np.take(NONLINEAR, nibbles(raw[:, 2:], 16), out=out, mode="clip")
    out *= half(raw, 0)


def _iq4_xs(raw: Bytes, out: Floats) -> None:
    """Unpack IQ4_XS blocks, [block, byte], into `out`, [block, number]: 256 numbers of a table
    of 16 (NONLINEAR); each 32 have a scale of six bits."""
    count = len(raw)
    # eight scales: two high bits each in one integer of 16 bits, four low bits each in four bytes
    pairs_of_bits = np.ascontiguousarray(raw[:, 2:4]).view("<u2")
    high = pairs_of_bits >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (raw[:, 4:8, None] >> PAIR[:, 0] & 15).reshape(count, 8)  # low half of a byte, high half
    # stored as numbers from 0 on, 32 more than they are
    scales = (low | high.astype(np.uint8) << np.uint8(4)).view(np.int8) - np.int8(32)
    np.take(NONLINEAR, nibbles(raw[:, 8:], 16), out=out, mode="clip")
    parts = out.reshape(count, 8, 32)  # [block, group, number]
    # a scale for each group, times the block's own in byte 0
    parts *= (half(raw, 0) * scales)[:, :, None]


def _mxfp4(raw: Bytes, out: Floats) -> None:
    """Unpack MXFP4 blocks, [block, byte], into `out`, [block, number]: 32 numbers of four bits
    (E2M1) and the power of two, one byte, that they share."""
    np.take(E2M1, nibbles(raw[:, 1:], 16), out=out, mode="clip")
    # exponents are stored as numbers from 0 on, 127 more than they are
    out *= np.ldexp(np.float32(1), raw[:, :1].astype(np.int32) - 127)


class BlockKind(Struct, frozen=True):
    """A format in which GGUF files store numbers, block by block.

    weights: numbers in one block.
    bytes: the size of a block.
    unpack: writes the scaled integers of blocks, [block, byte], to an array [block, number], and
        returns the offset to add to each group of them, [block, group]; None for no offsets.
    groups: how many groups with an offset a block has.
    """

    name: str
    weights: int
    bytes: int
    unpack: Callable[[Bytes, Floats], Floats | None]
    groups: int = 0

    def numbers(self, raw: Bytes) -> Floats:
        """The numbers of some blocks, float32 [number], from their bytes, [byte]."""
        out = np.empty((raw.size // self.bytes, self.weights), np.float32)
        # numbers that are not finite are reported by the reader of the tensor
        with np.errstate(over="ignore", invalid="ignore"):
            offsets = self.unpack(raw.reshape(-1, self.bytes), out)
            if offsets is not None:
                groups = out.reshape(*offsets.shape, -1)
                groups += offsets[:, :, None]
        return out.reshape(-1)

    def product(self, raw: Bytes, x: Floats, sums: Floats, room: Floats) -> Floats:
        """W·x, float32 [out, vector], for the rows W, [out, in], that some blocks hold.

        An offset is multiplied with the sum of its group of x, so that it is added once for a
        group and not to every number.

        Args:
            raw: The bytes of the blocks, [byte].
            x: Vectors, [in, vector].
            sums: What `group_sums` makes of x.
            room: At least as many numbers as the blocks have, to be overwritten; new memory for
                each product would take as long as unpacking into it.
        """
        count = raw.size // self.bytes * self.weights
        offsets = self.unpack(raw.reshape(-1, self.bytes), room[:count].reshape(-1, self.weights))
        product: Floats = room[:count].reshape(-1, len(x)) @ x
        if offsets is not None:
            product += offsets.reshape(len(product), -1) @ sums
        return product

    def group_sums(self, x: Floats) -> Floats:
        """The sums of x, [in, vector], over each group of numbers that has an offset, [group,
        vector]; empty for a kind without offsets."""
        if not self.groups:
            return x[:0]
        sums: Floats = x.reshape(-1, self.weights // self.groups, x.shape[1]).sum(1)
        return sums


BLOCKS = {
    0: BlockKind("F32", 1, 4, _f32),
    1: BlockKind("F16", 1, 2, _f16),
    2: BlockKind("Q4_0", 32, 18, _q4_0),
    3: BlockKind("Q4_1", 32, 20, _q4_1, 1),
    6: BlockKind("Q5_0", 32, 22, _q5_0),
    7: BlockKind("Q5_1", 32, 24, _q5_1, 1),
    8: BlockKind("Q8_0", 32, 34, _q8_0),
    10: BlockKind("Q2_K", SUPER, 84, _q2_k, 16),
    11: BlockKind("Q3_K", SUPER, 110, _q3_k),
    12: BlockKind("Q4_K", SUPER, 144, _q4_k, 8),
    13: BlockKind("Q5_K", SUPER, 176, _q5_k, 8),
    14: BlockKind("Q6_K", SUPER, 210, _q6_k),
    20: BlockKind("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockKind("IQ4_XS", SUPER, 136, _iq4_xs),
    30: BlockKind("BF16", 1, 2, _bf16),
    39: BlockKind("MXFP4", 32, 17, _mxfp4),
}
"""Every kind by its number in the format."""
