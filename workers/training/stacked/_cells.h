/* 2x2 max-pooling of one window's channels, for each kind of number, as bits: only compares and copies. */
#ifndef FEDAT_CELLS_H
#define FEDAT_CELLS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float from_float32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float from_bfloat16(uint16_t bits)
{
    return from_float32((uint32_t)bits << 16);
}

/* As torch takes them: the first of equals, and the last that is not a number. */
#define TAKE_IF_BETTER(KIND, VALUE, PLACE)                                                                  \
    {                                                                                                       \
        const float x = from_##KIND(VALUE), y = from_##KIND(best);                                          \
        const int better = x > y || x != x;                                                                 \
        best = better ? (VALUE) : best;                                                                     \
        winner = better ? (PLACE) : winner;                                                                 \
    }

/* All bits of a number, or none. */
#define MASK(BITS, WANTED) ((BITS)(0 - (BITS)(WANTED)))

/* The channels of one window, for one kind of number: its best values; its gradient to where they were. */
#define DEFINE_CELLS(KIND, BITS)                                                                            \
    static inline void best_of_four_##KIND(const BITS *restrict x0, const BITS *restrict x1,                \
                                           const BITS *restrict x2, const BITS *restrict x3,                \
                                           BITS *restrict y, uint8_t *restrict winners, size_t n)           \
    {                                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                                    \
            BITS best = x0[i];                                                                              \
            BITS winner = 0;                                                                             \
            TAKE_IF_BETTER(KIND, x1[i], 1)                                                                  \
            TAKE_IF_BETTER(KIND, x2[i], 2)                                                                  \
            TAKE_IF_BETTER(KIND, x3[i], 3)                                                                  \
            y[i] = best;                                                                                    \
            winners[i] = (uint8_t)winner;                                                                            \
        }                                                                                                   \
    }                                                                                                       \
    static inline void to_one_of_four_##KIND(const BITS *restrict g, const uint8_t *restrict winners,       \
                                             BITS *restrict d0, BITS *restrict d1, BITS *restrict d2,       \
                                             BITS *restrict d3, size_t n)                                   \
    {                                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                                    \
            const BITS gradient = g[i], winner = winners[i];                                                \
            d0[i] = gradient & MASK(BITS, winner == 0);                                                     \
            d1[i] = gradient & MASK(BITS, winner == 1);                                                     \
            d2[i] = gradient & MASK(BITS, winner == 2);                                                     \
            d3[i] = gradient & MASK(BITS, winner == 3);                                                     \
        }                                                                                                   \
    }

DEFINE_CELLS(float32, uint32_t)
DEFINE_CELLS(bfloat16, uint16_t)

#endif
