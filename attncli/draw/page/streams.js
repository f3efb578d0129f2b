/**
 * Named streams of a seed: the numbers that the command draws, bit for bit. Source: FIPS 202, SHAKE-256.
 */
const LANES = 25;
/** Bytes that a block of SHAKE-256 takes and gives. */
const RATE = 136;

/** The 24 round constants, from the shift register of the standard. */
const ROUNDS = (() => {
  let state = 1;
  const next = () => {
    const out = state & 1;
    state = (state << 1) ^ (state & 0x80 ? 0x171 : 0);
    return out;
  };
  return Array.from({ length: 24 }, () => {
    let found = 0n;
    for (let power = 0; power < 7; power++) if (next()) found |= 1n << BigInt((1 << power) - 1);
    return [Number(found & 0xffffffffn), Number(found >> 32n)];
  });
})();

/** How each lane is turned, and where it goes: [from, to, bits]. */
const MOVES = (() => {
  const found = [];
  let [x, y] = [1, 0];
  for (let step = 0; step < 24; step++) {
    const to = [y, (2 * x + 3 * y) % 5];
    found.push([x + 5 * y, to[0] + 5 * to[1], (((step + 1) * (step + 2)) / 2) % 64]);
    [x, y] = to;
  }
  return found;
})();

/** Keccak-f[1600] of lanes whose low and high halves are apart. @param {Int32Array} low @param {Int32Array} high */
function permute(low, high) {
  const [sumLow, sumHigh] = [new Int32Array(5), new Int32Array(5)];
  const [newLow, newHigh] = [new Int32Array(LANES), new Int32Array(LANES)];
  for (const [roundLow, roundHigh] of ROUNDS) {
    for (let x = 0; x < 5; x++) {
      sumLow[x] = low[x] ^ low[x + 5] ^ low[x + 10] ^ low[x + 15] ^ low[x + 20];
      sumHigh[x] = high[x] ^ high[x + 5] ^ high[x + 10] ^ high[x + 15] ^ high[x + 20];
    }
    for (let x = 0; x < 5; x++) {
      const [before, after] = [(x + 4) % 5, (x + 1) % 5];
      const toLow = sumLow[before] ^ ((sumLow[after] << 1) | (sumHigh[after] >>> 31));
      const toHigh = sumHigh[before] ^ ((sumHigh[after] << 1) | (sumLow[after] >>> 31));
      for (let lane = x; lane < LANES; lane += 5) {
        low[lane] ^= toLow;
        high[lane] ^= toHigh;
      }
    }
    newLow[0] = low[0];
    newHigh[0] = high[0];
    for (const [from, to, bits] of MOVES) {
      const [a, b] = bits < 32 ? [low[from], high[from]] : [high[from], low[from]];
      const turn = bits % 32;
      newLow[to] = turn ? (a << turn) | (b >>> (32 - turn)) : a;
      newHigh[to] = turn ? (b << turn) | (a >>> (32 - turn)) : b;
    }
    for (let row = 0; row < LANES; row += 5) {
      for (let x = 0; x < 5; x++) {
        const [one, two] = [row + ((x + 1) % 5), row + ((x + 2) % 5)];
        low[row + x] = newLow[row + x] ^ (~newLow[one] & newLow[two]);
        high[row + x] = newHigh[row + x] ^ (~newHigh[one] & newHigh[two]);
      }
    }
    low[0] ^= roundLow;
    high[0] ^= roundHigh;
  }
}

/** The first `count` 32-bit numbers of SHAKE-256 of some bytes. @param {Uint8Array} message @param {number} count */
function shake(message, count) {
  const [low, high] = [new Int32Array(LANES), new Int32Array(LANES)];
  const padded = new Uint8Array((Math.floor(message.length / RATE) + 1) * RATE);
  padded.set(message);
  padded[message.length] ^= 0x1f;
  padded[padded.length - 1] ^= 0x80;
  const words = new DataView(padded.buffer);
  for (let start = 0; start < padded.length; start += RATE) {
    for (let lane = 0; lane < RATE / 8; lane++) {
      low[lane] ^= words.getInt32(start + 8 * lane, true);
      high[lane] ^= words.getInt32(start + 8 * lane + 4, true);
    }
    permute(low, high);
  }
  const found = new Uint32Array(count);
  for (let place = 0; place < count; place++) {
    const inside = place % (RATE / 4);
    if (place && !inside) permute(low, high);
    found[place] = (inside % 2 ? high : low)[inside >> 1];
  }
  return found;
}

/** Numbers uniform in ±√3·scale, as float32 has them, of a seed and the name of a stream.
 * @param {number|string} seed @param {string} name @param {number} count @param {number} scale */
export function uniformNumbers(seed, name, count, scale = 1) {
  const raw = shake(new TextEncoder().encode(`attn\0${seed}\0${name}`), count);
  return Float64Array.from(raw, (one) => Math.fround(((one + 0.5) * 2 ** -31 - 1) * (Math.sqrt(3) * scale)));
}
