/* Characters to values, however hostile the characters are.
 *
 * Characters become integers a block at a time, and every block ends in one of three sinks: it is thrown
 * away (check), divided into floats (decode), or added to a running sum (add).
 */
#ifndef FEDAT_POLYLINE_DECODE_H
#define FEDAT_POLYLINE_DECODE_H

#include "_polyline_common.h"

/* What can be wrong with a payload, and the value it is wrong at. */
enum fault_kind { FINE, BAD_BYTE, TOO_LONG, UNTERMINATED, OUT_OF_RANGE, TOO_MANY, TOO_FEW };

typedef struct {
    enum fault_kind kind;
    size_t index;
} Fault;

/* Where decoded integers go: at most one of `values` and `total` is set. */
typedef struct {
    float *values; /* values[i] = q / factor */
    double factor;
    double *total; /* total[i] += weight * q */
    double weight;
} Sink;

/* Reads the plain values at the head of a stretch of characters: at least LOOK_BACK bytes before and
 * LOOK_AHEAD bytes after `b` belong to the payload. Adds up to WINDOW values to z[*n ...], writing up to
 * WINDOW_SLACK more behind them, and returns the bytes read; 0 if anything there is not plain. */
typedef size_t Window(const uint8_t *b, uint32_t *z, size_t *n);
enum { WINDOW = 64, WINDOW_SLACK = 8, LOOK_BACK = 3, LOOK_AHEAD = 72 };

/* The low 5 bits of seven bytes, side by side. */
ALWAYS_INLINE uint64_t gather(uint64_t w)
{
    w = (w & UINT64_C(0x001f001f001f001f)) | (w & UINT64_C(0x1f001f001f001f00)) >> 3;
    w = (w & UINT64_C(0x000003ff000003ff)) | (w & UINT64_C(0x03ff000003ff0000)) >> 6;
    return (w & 0xfffff) | w >> 32 << 20;
}

/* Reads one value from eight bytes at once; returns its length, or 0 and sets the fault. */
ALWAYS_INLINE size_t read_value(const uint8_t *b, size_t rest, uint32_t *z, enum fault_kind *fault)
{
    uint8_t padded[8] = {FIRST_CHAR, FIRST_CHAR, FIRST_CHAR, FIRST_CHAR,
                         FIRST_CHAR, FIRST_CHAR, FIRST_CHAR, FIRST_CHAR};
    if (rest < 8)
        b = memcpy(padded, b, rest);
    uint64_t raw = get64(b), six = raw + EVERY_BYTE(1); /* 64 + the six bits of each character */
    uint64_t ends = ~six & EVERY_BYTE(0x20);
    uint64_t mine = ends ^ (ends - 1); /* every bit up to the first end's */
    size_t length = (size_t)((mine & EVERY_BYTE(1)) * EVERY_BYTE(1) >> 56);
    /* Below 63 the sixth bit of `six` is not set; above 126 it is carried away, or the byte's top bit is. */
    uint64_t wrong = (raw | ~(six << 1)) & (EVERY_BYTE(0x80) >> 8);
    uint64_t value = gather(six & mine & (EVERY_BYTE(0x1f) >> 8));
    if (wrong & mine << 2)
        *fault = BAD_BYTE;
    else if (length > (rest < MAX_CHARS ? rest : MAX_CHARS))
        *fault = rest > MAX_CHARS ? TOO_LONG : UNTERMINATED;
    else if (value >> 32)
        *fault = OUT_OF_RANGE;
    *z = (uint32_t)value;
    return *fault ? 0 : length;
}

/* Reads at least BLOCK values, unless the payload ends or is at fault before; returns how many. */
ALWAYS_INLINE size_t read_block(const uint8_t *begin, const uint8_t **at, const uint8_t *end, Window *window,
                                uint32_t *z, enum fault_kind *fault)
{
    const uint8_t *b = *at;
    size_t n = 0;
    while (n < BLOCK && b < end && !*fault) {
        if (window && b - begin >= LOOK_BACK && end - b >= LOOK_AHEAD) {
            size_t used = window(b, z, &n);
            b += used;
            if (used)
                continue;
        }
        /* A stretch that is not plain is read value by value before the next try. */
        for (int i = 0; i < 16 && b < end && !*fault; i++) {
            b += read_value(b, (size_t)(end - b), z + n, fault);
            n += !*fault;
        }
    }
    *at = b;
    return n;
}

/* Zigzag differences to integers, in place; returns how many are in range before the first that is not.
 *
 * `column` holds the last two integers. The sums wrap at 32 bits, but the first one that leaves the range
 * stays visible: from below 2^30, a difference below 2^31 reaches less than 2^32 - 2^30, where wrapping would
 * lead back into it. */
ALWAYS_INLINE size_t settle_block(uint32_t *z, size_t n, size_t lag, uint32_t column[2])
{
    for (size_t i = 0; i < n; i++)
        z[i] = z[i] >> 1 ^ (0u - (z[i] & 1));
    if (lag) {
        /* Two at a time: the next of each column, or the next two of the only one. */
        uint32_t older = column[0], newer = column[1];
        size_t i = 0;
        for (; i + 1 < n; i += 2) {
            older = z[i] += lag == 2 ? older : newer;
            newer = z[i + 1] += lag == 2 ? newer : older;
        }
        if (i < n) {
            uint32_t last = z[i] += lag == 2 ? older : newer;
            older = newer;
            newer = last;
        }
        column[0] = older;
        column[1] = newer;
    }
    /* -2^30 < q < 2^30, as one unsigned comparison. */
    const uint32_t shift = Q_LIMIT - 1, highest = 2u * Q_LIMIT - 2;
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = z[i] + shift > worst ? z[i] + shift : worst;
    if (worst <= highest)
        return n;
    size_t i = 0;
    while (z[i] + shift <= highest)
        i++;
    return i;
}

/* Integers to floats. Up to 2^24 both sides of the division are exact floats, and a float division rounds
 * to the same value as a double one rounded again (53 >= 2 * 24 + 2); beyond, it must be the double one. */
ALWAYS_INLINE void divide_block(const int32_t *q, size_t n, double factor, float *values)
{
    int32_t high = 0, low = 0;
    for (size_t i = 0; i < n; i++) {
        high = q[i] > high ? q[i] : high;
        low = q[i] < low ? q[i] : low;
    }
    if (high <= 1 << 24 && low >= -(1 << 24)) {
        for (size_t i = 0; i < n; i++)
            values[i] = (float)q[i] / (float)factor;
    } else {
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(q[i] / factor);
    }
}

/* Reads `count` values from `size` bytes into the sink; the first fault, in the order of the bytes. */
ALWAYS_INLINE Fault scan_any(const uint8_t *b, size_t size, size_t count, size_t lag, Sink sink, Window *window)
{
    uint32_t z[BLOCK + WINDOW + WINDOW_SLACK], column[2] = {0, 0};
    const uint8_t *begin = b, *end = b + size;
    Fault fault = {FINE, 0};
    while (b < end && fault.kind == FINE) {
        size_t n = read_block(begin, &b, end, window, z, &fault.kind), left = count - fault.index;
        if (n > left || (n == left && fault.kind)) {
            n = left;
            fault.kind = TOO_MANY;
        }
        size_t good = settle_block(z, n, lag, column);
        if (good < n)
            return (Fault){OUT_OF_RANGE, fault.index + good};
        if (sink.values)
            divide_block((const int32_t *)z, n, sink.factor, sink.values + fault.index);
        for (size_t i = 0; sink.total && i < n; i++)
            sink.total[fault.index + i] += sink.weight * (int32_t)z[i];
        fault.index += n;
    }
    if (fault.kind == FINE && fault.index < count)
        fault.kind = TOO_FEW;
    return fault;
}

#endif
