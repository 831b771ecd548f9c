/* What both directions share. Portable C99, for either byte order. */
#ifndef FEDAT_POLYLINE_COMMON_H
#define FEDAT_POLYLINE_COMMON_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Loops written once and compiled for more than one kind of machine must be inlined into a function of
 * that kind. */
#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE static inline
#endif

enum {
    BLOCK = 1024,     /* values that go through the loops together: a few kilobytes, at home in the first cache */
    MAX_CHARS = 7,    /* a 32-bit zigzag value in 5-bit groups */
    FIRST_CHAR = 63,  /* '?', the character of 0 */
    Q_LIMIT = 1 << 30 /* every integer is smaller than this, so that a difference of two fits 32 bits */
};

#define EVERY_BYTE(x) ((uint64_t)(x) * UINT64_C(0x0101010101010101))

/* Little-endian on every machine; a compiler makes each of them one instruction. */
ALWAYS_INLINE uint64_t get64(const uint8_t *b)
{
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 |
           (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
}

ALWAYS_INLINE void put64(uint8_t *b, uint64_t w)
{
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(w >> 8 * i);
}

#endif
