/* The loops of a convolution of one channel with 2x2 max-pooling.
 *
 * Built without contraction, they add up in one order, whatever the width of a machine's registers: they give
 * the bits of the NumPy half.
 */
#ifndef FEDAT_WINDOW_LOOPS_H
#define FEDAT_WINDOW_LOOPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../_machines.h"
#include "_cells.h"

enum { LANES = 16, MOST_TAPS = 128, MOST_WINDOWS = 16, NOWHERE = 4 };
enum Direction { FORWARD, FORWARD_WITH_RELU, BACKWARD };

/* Output channels side by side; compilers split them over what registers there are. */
typedef float Lanes __attribute__((vector_size(4 * LANES)));

/* `images` (clients, batch, height, width), of which a row lies without gaps; the others are without any:
 * `kernels` (clients, rows, columns, channels), `biases` (clients, channels), `results` and `winners` (batch,
 * high, wide, clients, channels).
 */
typedef struct {
    const float *images;
    float *kernels, *biases, *results;
    uint8_t *winners;
    ptrdiff_t next_client, next_image, next_row; /* in floats */
    size_t clients, batch, rows, columns, channels, high, wide;
} Arrays;

/* Some channels of one client: what the innermost loops work with. */
typedef struct {
    Lanes kernel[MOST_TAPS], bias;
    ptrdiff_t next_row;
    size_t rows, columns, high, wide;
    size_t count; /* of channels; what the other lanes hold does not matter */
    size_t step;  /* from one window's results to the next one's */
} Block;

/* Some windows side by side: values or gradients at the four places of each, and what is left of them. */
typedef struct {
    uint32_t places[4][MOST_WINDOWS * LANES];
    uint32_t bits[MOST_WINDOWS * LANES];
    uint8_t winners[MOST_WINDOWS * LANES];
    size_t count;
} Windows;

/* Fill the places of some windows, the first of them at `x`. Where a compiler knows the size of the kernel, it
 * keeps that in registers: `convolve` and `accumulate` tell it the commonest.
 */
static inline void convolve_by(size_t rows, size_t columns, const Block *restrict s, const float *restrict x,
                               Windows *restrict v)
{
    for (size_t j = 0; j < v->count; j++) {
        const Lanes *kernel = s->kernel;
        Lanes v0 = s->bias, v1 = v0, v2 = v0, v3 = v0;
        for (size_t row = 0; row < rows; row++) {
            const float *above = x + (ptrdiff_t)row * s->next_row + 2 * j, *below = above + s->next_row;
            for (size_t column = 0; column < columns; column++, kernel++) {
                v0 += *kernel * above[column];
                v1 += *kernel * above[column + 1];
                v2 += *kernel * below[column];
                v3 += *kernel * below[column + 1];
            }
        }
        memcpy(v->places[0] + j * LANES, &v0, sizeof v0);
        memcpy(v->places[1] + j * LANES, &v1, sizeof v1);
        memcpy(v->places[2] + j * LANES, &v2, sizeof v2);
        memcpy(v->places[3] + j * LANES, &v3, sizeof v3);
    }
}

/* Add to the parameters' gradients what those of the windows' places say. */
static inline void accumulate_by(size_t rows, size_t columns, Block *restrict s, const float *restrict x,
                                 const Windows *restrict v)
{
    for (size_t j = 0; j < v->count; j++) {
        Lanes *kernel = s->kernel, g0, g1, g2, g3;
        memcpy(&g0, v->places[0] + j * LANES, sizeof g0);
        memcpy(&g1, v->places[1] + j * LANES, sizeof g1);
        memcpy(&g2, v->places[2] + j * LANES, sizeof g2);
        memcpy(&g3, v->places[3] + j * LANES, sizeof g3);
        for (size_t row = 0; row < rows; row++) {
            const float *above = x + (ptrdiff_t)row * s->next_row + 2 * j, *below = above + s->next_row;
            for (size_t column = 0; column < columns; column++, kernel++)
                *kernel += g0 * above[column] + g1 * above[column + 1] + g2 * below[column] +
                           g3 * below[column + 1];
        }
        s->bias += g0 + g1 + g2 + g3;
    }
}

BUILT_FOR("avx512f", "avx2")
static void convolve(const Block *s, const float *x, Windows *v)
{
    if (s->rows == 3 && s->columns == 3)
        convolve_by(3, 3, s, x, v);
    else
        convolve_by(s->rows, s->columns, s, x, v);
}

BUILT_FOR("avx512f", "avx2")
static void accumulate(Block *s, const float *x, const Windows *v)
{
    if (s->rows == 3 && s->columns == 3)
        accumulate_by(3, 3, s, x, v);
    else
        accumulate_by(s->rows, s->columns, s, x, v);
}

BUILT_FOR("avx2")
static void pool(Windows *v, int relu)
{
    const size_t n = v->count * LANES;
    best_of_four_float32(v->places[0], v->places[1], v->places[2], v->places[3], v->bits, v->winners, n);
    if (relu)
        for (size_t i = 0; i < n; i++) {
            const int dead = from_float32(v->bits[i]) <= 0;
            v->bits[i] = dead ? 0 : v->bits[i];
            v->winners[i] = dead ? NOWHERE : v->winners[i];
        }
}

BUILT_FOR("avx2")
static void spread(Windows *v)
{
    to_one_of_four_float32(v->bits, v->winners, v->places[0], v->places[1], v->places[2], v->places[3],
                           v->count * LANES);
}

/* Sizes that a compiler knows are one instruction, others a call. */
static inline void copy_lanes(void *to, const void *from, size_t count, size_t item_bytes)
{
    if (count == LANES && item_bytes == 4)
        memcpy(to, from, LANES * 4);
    else if (count == LANES && item_bytes == 1)
        memcpy(to, from, LANES);
    else
        memcpy(to, from, count * item_bytes);
}

static inline void store(const Block *s, const Windows *v, float *results, uint8_t *winners)
{
    for (size_t j = 0; j < v->count; j++) {
        copy_lanes(results + j * s->step, v->bits + j * LANES, s->count, sizeof *results);
        copy_lanes(winners + j * s->step, v->winners + j * LANES, s->count, sizeof *winners);
    }
}

static inline void load(const Block *s, Windows *v, const float *results, const uint8_t *winners)
{
    for (size_t j = 0; j < v->count; j++) {
        copy_lanes(v->bits + j * LANES, results + j * s->step, s->count, sizeof *results);
        copy_lanes(v->winners + j * LANES, winners + j * s->step, s->count, sizeof *winners);
    }
}

/* Some windows of a row, the first of them at `x`. */
static void run_windows(Block *s, Windows *v, const float *x, float *results, uint8_t *winners,
                        enum Direction direction)
{
    if (direction == BACKWARD) {
        load(s, v, results, winners);
        spread(v);
        accumulate(s, x, v);
    } else {
        convolve(s, x, v);
        pool(v, direction == FORWARD_WITH_RELU);
        store(s, v, results, winners);
    }
}

static void run_image(Block *s, const float *image, float *results, uint8_t *winners,
                      enum Direction direction)
{
    Windows v = {.count = 0};
    for (size_t i = 0; i < s->high; i++)
        for (size_t j = 0; j < s->wide; j += v.count) {
            const size_t left = s->wide - j, at = (i * s->wide + j) * s->step;
            v.count = left < MOST_WINDOWS ? left : MOST_WINDOWS;
            run_windows(s, &v, image + 2 * (ptrdiff_t)i * s->next_row + 2 * j, results + at, winners + at,
                        direction);
        }
}

/* Take some channels of a client's parameters into lanes, or put their gradients there. */
static void move_parameters(const Arrays *a, size_t client, size_t channel, Block *s,
                            enum Direction direction)
{
    const size_t taps = s->rows * s->columns, bytes = s->count * sizeof(float);
    float *kernel = a->kernels + client * taps * a->channels + channel;
    float *bias = a->biases + client * a->channels + channel;
    for (size_t tap = 0; tap <= taps; tap++) {
        void *lanes = tap < taps ? &s->kernel[tap] : &s->bias;
        void *lying = tap < taps ? kernel + tap * a->channels : bias;
        memcpy(direction == BACKWARD ? lying : lanes, direction == BACKWARD ? lanes : lying, bytes);
    }
}

/* All images of one client, for some channels: in this order each sum is made. */
static void run_block(const Arrays *a, size_t client, size_t channel, enum Direction direction)
{
    const size_t left = a->channels - channel, step = a->clients * a->channels;
    Block s = {.next_row = a->next_row, .rows = a->rows, .columns = a->columns, .high = a->high,
               .wide = a->wide, .count = left < LANES ? left : LANES, .step = step};
    if (direction != BACKWARD)
        move_parameters(a, client, channel, &s, direction);
    for (size_t b = 0; b < a->batch; b++) {
        const float *image = a->images + (ptrdiff_t)client * a->next_client + (ptrdiff_t)b * a->next_image;
        const size_t at = b * a->high * a->wide * step + client * a->channels + channel;
        run_image(&s, image, a->results + at, a->winners + at, direction);
    }
    if (direction == BACKWARD)
        move_parameters(a, client, channel, &s, direction);
}

static void run(const Arrays *a, enum Direction direction)
{
    for (size_t client = 0; client < a->clients; client++)
        for (size_t channel = 0; channel < a->channels; channel += LANES)
            run_block(a, client, channel, direction);
}

#endif
