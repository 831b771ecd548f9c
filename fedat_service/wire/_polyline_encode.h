/* Values to characters.
 *
 * A block of values is taken through a few plain loops, each simple enough for a compiler to turn into
 * vector code for whatever machine it builds for: quantise, difference and zigzag, spread into characters.
 */
#ifndef FEDAT_POLYLINE_ENCODE_H
#define FEDAT_POLYLINE_ENCODE_H

#include "_polyline_common.h"

/* One value is at most MAX_CHARS long, and the last store may reach past it. */
#define ENCODED_BOUND(n) ((n) * MAX_CHARS + sizeof(uint64_t))

/* The largest |x| whose integer is below 2^30, as the bits of a float: the bits of positive floats are in
 * the order of the floats, with infinity and NaN above them all, so that one comparison finds every value
 * that cannot be carried. */
static uint32_t largest_bits(double factor)
{
    const double limit = (double)Q_LIMIT - 0.5;
    float largest = (float)(limit / factor);
    while ((double)largest * factor >= limit)
        largest = nextafterf(largest, 0.0f);
    uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    return bits;
}

/* q = round-half-away(x * factor), or false if some value cannot be carried. A float times 10^p has less
 * than 53 significant bits, so both the product and the sum with a half are exact where it matters. */
ALWAYS_INLINE bool quantise_block(const float *x, size_t n, double factor, uint32_t largest, int32_t *q)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        worst = bits > worst ? bits : worst;
    }
    if (worst > largest)
        return false;
    for (size_t i = 0; i < n; i++) {
        double y = (double)x[i] * factor;
        q[i] = (int32_t)(y + copysign(0.5, y));
    }
    return true;
}

/* z = zigzag(q - before); returns all of them, OR-ed. */
ALWAYS_INLINE uint32_t zigzag_block(const int32_t *q, const int32_t *before, size_t n, uint32_t *z)
{
    uint32_t all = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t d = (uint32_t)q[i] - (uint32_t)before[i];
        z[i] = d << 1 ^ (0u - (d >> 31));
        all |= z[i];
    }
    return all;
}

/* Values of up to four characters, z < 2^20: spread into words without a branch, stored two at a time. */
ALWAYS_INLINE uint8_t *write_short(const uint32_t *z, size_t n, uint8_t *out)
{
    uint32_t words[BLOCK], bits[BLOCK];
    for (size_t i = 0; i < n; i++) {
        /* All ones where the value has a second, third, fourth character. */
        uint32_t second = 0u - (z[i] >> 5 != 0), third = 0u - (z[i] >> 10 != 0), fourth = 0u - (z[i] >> 15 != 0);
        uint32_t w = (z[i] & 0x003ff) | (z[i] & 0xffc00) << 6;
        w = (w & 0x001f001f) | (w & 0x03e003e0) << 3;
        /* Every further character adds its own 63 and the continuation bit of the one before. */
        words[i] = w + 0x3f + (second & 0x3f20) + (third & 0x3f2000) + (fourth & 0x3f200000);
        bits[i] = 8 + (second & 8) + (third & 8) + (fourth & 8);
    }
    size_t i = 0;
    for (; i + 1 < n; i += 2) {
        put64(out, words[i] | (uint64_t)words[i + 1] << bits[i]);
        out += (bits[i] + bits[i + 1]) / 8;
    }
    if (i < n) {
        put64(out, words[i]);
        out += bits[i] / 8;
    }
    return out;
}

/* Values of any length, a character at a time. */
ALWAYS_INLINE uint8_t *write_long(const uint32_t *z, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t rest = z[i];
        for (; rest > 31; rest >>= 5)
            *out++ = (uint8_t)((rest & 31) + 32 + FIRST_CHAR);
        *out++ = (uint8_t)(rest + FIRST_CHAR);
    }
    return out;
}

/* Writes n values to `out`, which holds ENCODED_BOUND(n) bytes; returns the bytes written, or -1 if some
 * value cannot be carried. */
ALWAYS_INLINE ptrdiff_t encode_any(const float *x, size_t n, double factor, size_t lag, uint8_t *out)
{
    static const int32_t NOTHING[BLOCK];
    const uint32_t largest = largest_bits(factor);
    int32_t history[2 + BLOCK] = {0}, *q = history + 2;
    uint32_t z[BLOCK];
    uint8_t *at = out;
    for (size_t done = 0; done < n; done += BLOCK) {
        size_t size = n - done < BLOCK ? n - done : BLOCK;
        if (!quantise_block(x + done, size, factor, largest, q))
            return -1;
        uint32_t all = zigzag_block(q, lag ? q - lag : NOTHING, size, z);
        at = all >> 20 ? write_long(z, size, at) : write_short(z, size, at);
        history[0] = q[size - 2];
        history[1] = q[size - 1];
    }
    return at - out;
}

#endif
