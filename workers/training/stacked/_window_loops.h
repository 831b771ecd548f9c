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

/* With the masks of AVX-512 such vectors compare fastest. */
#if defined __GNUC__ && !defined __clang__ && __GNUC__ >= 12
#define BUILT_FOR_LANES BUILT_FOR("arch=x86-64-v4", "avx2")
#else
#define BUILT_FOR_LANES BUILT_FOR("avx2")
#endif

/* Eight were fastest with AVX2 and AVX-512; without these, four fit into a register. */
enum { LANES = SEVERAL_BUILDS ? 8 : 4, MOST_TAPS = 64, NOWHERE = 4 };
enum Direction { FORWARD, FORWARD_WITH_RELU, BACKWARD };

/* Output channels side by side: numbers, masks and places in windows. */
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t Places __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

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

#define WHERE(MASK, YES, NO) (((MASK) & (YES)) | (~(MASK) & (NO)))
#define ALL(PLACE) ((Places){0} + (PLACE))

/* As torch takes them: the first of equals, and the last that is not a number. */
#define TAKE_IF_BETTER(VALUE, PLACE)                                                                        \
    {                                                                                                       \
        const Places better = (Places)((VALUE) > best) | (Places)((VALUE) != (VALUE));                      \
        best = (Lanes)WHERE(better, (Places)(VALUE), (Places)best);                                         \
        winner = WHERE(better, ALL(PLACE), winner);                                                         \
    }

/* Whole lanes by one instruction, a part of them by a call. */
#define COPY_LANES(TO, FROM, COUNT)                                                                         \
    {                                                                                                       \
        if ((COUNT) == LANES)                                                                               \
            memcpy(TO, FROM, LANES * sizeof *(FROM));                                                       \
        else                                                                                                \
            memcpy(TO, FROM, (COUNT) * sizeof *(FROM));                                                     \
    }

/* A compiler unrolls this, and then reads no value twice: the commonest kernel takes .8 of the time. */
#define TAPS_3X3(DO) DO(0, 0) DO(0, 1) DO(0, 2) DO(1, 0) DO(1, 1) DO(1, 2) DO(2, 0) DO(2, 1) DO(2, 2)

#define ALL_TAPS(DO)                                                                                        \
    {                                                                                                       \
        if (s->rows == 3 && s->columns == 3) {                                                              \
            TAPS_3X3(DO)                                                                                    \
        } else {                                                                                            \
            for (size_t row = 0; row < s->rows; row++)                                                      \
                for (size_t column = 0; column < s->columns; column++)                                      \
                    DO(row, column)                                                                         \
        }                                                                                                   \
    }

/* For one weight of the kernel: what it adds to the results at a window's places, `x` being the first. */
#define CONVOLVE(ROW, COLUMN)                                                                               \
    {                                                                                                       \
        const Lanes kernel = s->kernel[(ROW) * s->columns + (COLUMN)];                                      \
        const float *above = x + (ptrdiff_t)(ROW) * s->next_row + (COLUMN), *below = above + s->next_row;   \
        v0 += kernel * above[0];                                                                            \
        v1 += kernel * above[1];                                                                            \
        v2 += kernel * below[0];                                                                            \
        v3 += kernel * below[1];                                                                            \
    }

/* And what the gradients at these places add to its own. */
#define ACCUMULATE(ROW, COLUMN)                                                                             \
    {                                                                                                       \
        const float *above = x + (ptrdiff_t)(ROW) * s->next_row + (COLUMN), *below = above + s->next_row;   \
        s->kernel[(ROW) * s->columns + (COLUMN)] +=                                                         \
            (g0 * above[0] + g1 * above[1]) + (g2 * below[0] + g3 * below[1]);                              \
    }

BUILT_FOR_LANES
static void forward_image(const Block *restrict s, const float *restrict image, float *restrict results,
                          uint8_t *restrict winners, int relu)
{
    for (size_t i = 0; i < s->high; i++)
        for (size_t j = 0; j < s->wide; j++, results += s->step, winners += s->step) {
            const float *x = image + 2 * ((ptrdiff_t)i * s->next_row + (ptrdiff_t)j);
            Lanes v0 = s->bias, v1 = v0, v2 = v0, v3 = v0;
            ALL_TAPS(CONVOLVE)
            Lanes best = v0;
            Places winner = ALL(0);
            TAKE_IF_BETTER(v1, 1)
            TAKE_IF_BETTER(v2, 2)
            TAKE_IF_BETTER(v3, 3)
            if (relu) {
                const Places dead = (Places)(best <= 0.0f);
                best = (Lanes)(~dead & (Places)best);
                winner = WHERE(dead, ALL(NOWHERE), winner);
            }
            const Bytes places = __builtin_convertvector(winner, Bytes);
            COPY_LANES(results, (const float *)&best, s->count)
            COPY_LANES(winners, (const uint8_t *)&places, s->count)
        }
}

BUILT_FOR_LANES
static void backward_image(Block *restrict s, const float *restrict image, const float *restrict results,
                           const uint8_t *restrict winners)
{
    for (size_t i = 0; i < s->high; i++)
        for (size_t j = 0; j < s->wide; j++, results += s->step, winners += s->step) {
            const float *x = image + 2 * ((ptrdiff_t)i * s->next_row + (ptrdiff_t)j);
            uint8_t places[LANES] = {0};
            int32_t wide_places[LANES];
            Places gradient = ALL(0), winner;
            COPY_LANES(&gradient, results, s->count)
            COPY_LANES(places, winners, s->count)
            for (int lane = 0; lane < LANES; lane++)
                wide_places[lane] = places[lane];
            memcpy(&winner, wide_places, sizeof winner);
            const Lanes g0 = (Lanes)(gradient & (winner == 0)), g1 = (Lanes)(gradient & (winner == 1));
            const Lanes g2 = (Lanes)(gradient & (winner == 2)), g3 = (Lanes)(gradient & (winner == 3));
            ALL_TAPS(ACCUMULATE)
            s->bias += (g0 + g1) + (g2 + g3);
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
        if (direction == BACKWARD)
            backward_image(&s, image, a->results + at, a->winners + at);
        else
            forward_image(&s, image, a->results + at, a->winners + at, direction == FORWARD_WITH_RELU);
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
