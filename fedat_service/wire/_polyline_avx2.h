/* The plain stretches of a payload, eight characters a step. Most weights are nothing but plain. */
#ifndef FEDAT_POLYLINE_AVX2_H
#define FEDAT_POLYLINE_AVX2_H

#if defined(__GNUC__) && defined(__x86_64__)
#define HAVE_AVX2 1

#include <immintrin.h>

#include "_polyline_decode.h"

#define AVX2 __attribute__((target("avx2,popcnt")))

static bool machine_has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

/* For eight characters and the three before them, as a mask of those that end a value: where the characters
 * of each value that ends among the eight go, so that every value has four bytes of its own. */
static uint8_t PLACES[1 << (LOOK_BACK + 8)][32];

static void make_places(void)
{
    memset(PLACES, 0x80, sizeof PLACES); /* 0x80: no character goes here */
    for (unsigned ends = 0; ends < 1u << (LOOK_BACK + 8); ends++) {
        uint8_t *place = PLACES[ends];
        unsigned first = 0;
        for (unsigned i = 0; i < LOOK_BACK + 8; i++) {
            if (!(ends >> i & 1))
                continue;
            for (unsigned j = 0; i >= LOOK_BACK && j < 4 && first + j <= i; j++)
                place[j] = (uint8_t)(first + j);
            place += i >= LOOK_BACK ? 4 : 0;
            first = i + 1;
        }
    }
}

/* A mask of the characters that end a value; false if a byte is no character at all. */
AVX2 static inline bool find_ends(const uint8_t *b, uint64_t *ends)
{
    const __m256i zero = _mm256_set1_epi8(FIRST_CHAR);
    __m256i low = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)b), zero);
    __m256i high = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(b + 32)), zero);
    /* The continuation bit, moved to where movemask looks. */
    uint32_t low_mask = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(low, 2));
    uint32_t high_mask = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(high, 2));
    *ends = ~((uint64_t)high_mask << 32 | low_mask);
    return _mm256_testz_si256(_mm256_or_si256(low, high), _mm256_set1_epi8((char)0xc0));
}

/* The values that end among the eight characters at `b`, in zigzag form. */
AVX2 static inline __m256i read_eight(const uint8_t *b, unsigned ends)
{
    __m256i chars = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(b - LOOK_BACK)));
    __m256i six = _mm256_sub_epi8(chars, _mm256_set1_epi8(FIRST_CHAR));
    __m256i placed = _mm256_shuffle_epi8(six, _mm256_loadu_si256((const __m256i *)PLACES[ends]));
    __m256i groups = _mm256_and_si256(placed, _mm256_set1_epi8(0x1f));
    __m256i pairs = _mm256_maddubs_epi16(groups, _mm256_set1_epi16(32 << 8 | 1));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi32(1024 << 16 | 1));
}

/* See Window: plain is a stretch of 64 characters in which no value has more than four. */
AVX2 static size_t window_avx2(const uint8_t *b, uint32_t *z, size_t *n)
{
    uint64_t ends;
    if (!find_ends(b, &ends))
        return 0;
    uint64_t open_two = ~ends & ~ends >> 1, open_four = open_two & open_two >> 2;
    if (open_four)
        return 0;
    uint64_t before = ends << LOOK_BACK | ((1u << LOOK_BACK) - 1); /* a value begins at `b` */
    for (unsigned i = 0; i < 8; i++) {
        unsigned here = (unsigned)(i < 7 ? before >> 8 * i : ends >> (64 - LOOK_BACK - 8)) & 0x7ff;
        _mm256_storeu_si256((__m256i *)(z + *n), read_eight(b + 8 * i, here));
        *n += (size_t)__builtin_popcount(here >> LOOK_BACK);
    }
    return 64 - (size_t)__builtin_clzll(ends);
}

#endif
#endif
