/* 2x2 max-pooling of channels-last images, and its way back: see `workers.training.stacked.max_pool`.
 *
 * That checks the arguments; what is checked here is only what memory safety needs. Every loop runs without
 * the interpreter's lock, and only compares and copies: each gives torch's own bits on any machine.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../_machines.h"

/* Images ``(batch, height, width, channels)``, channels next to each other. */
typedef struct {
    size_t batch, height, width, channels;
} Shape;

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
            uint8_t winner = 0;                                                                             \
            TAKE_IF_BETTER(KIND, x1[i], 1)                                                                  \
            TAKE_IF_BETTER(KIND, x2[i], 2)                                                                  \
            TAKE_IF_BETTER(KIND, x3[i], 3)                                                                  \
            y[i] = best;                                                                                    \
            winners[i] = winner;                                                                            \
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

/* Whole images. `winners` says which of its window's four values each result is. */
#define DEFINE_LOOPS(KIND, BITS)                                                                            \
    BUILT_FOR("avx2")                                                                                      \
    static void forward_##KIND(void *images, void *results, uint8_t *winners, Shape s)                      \
    {                                                                                                       \
        const BITS *x = images;                                                                             \
        BITS *y = results;                                                                                  \
        const size_t c = s.channels, row = s.width * c;                                                     \
        for (size_t b = 0; b < s.batch; b++)                                                                \
            for (size_t i = 0; i < s.height / 2; i++)                                                       \
                for (size_t j = 0; j < s.width / 2; j++, y += c, winners += c) {                            \
                    const BITS *at = x + (b * s.height + 2 * i) * row + 2 * j * c;                          \
                    best_of_four_##KIND(at, at + c, at + row, at + row + c, y, winners, c);                 \
                }                                                                                           \
    }                                                                                                       \
    BUILT_FOR("avx2")                                                                                      \
    static void backward_##KIND(void *images, void *results, uint8_t *winners, Shape s)                     \
    {                                                                                                       \
        const BITS *g = results;                                                                            \
        const size_t c = s.channels, row = s.width * c;                                                     \
        for (size_t b = 0; b < s.batch; b++) {                                                              \
            BITS *image = (BITS *)images + b * s.height * row;                                              \
            for (size_t i = 0; i < s.height / 2; i++) {                                                     \
                BITS *at = image + 2 * i * row;                                                             \
                for (size_t j = 0; j < s.width / 2; j++, g += c, winners += c, at += 2 * c)                 \
                    to_one_of_four_##KIND(g, winners, at, at + c, at + row, at + row + c, c);               \
                if (s.width % 2) {                                                                          \
                    memset(at, 0, c * sizeof *at);                                                          \
                    memset(at + row, 0, c * sizeof *at);                                                    \
                }                                                                                           \
            }                                                                                               \
            if (s.height % 2)                                                                               \
                memset(image + (s.height - 1) * row, 0, row * sizeof *image);                               \
        }                                                                                                   \
    }

DEFINE_CELLS(float32, uint32_t)
DEFINE_CELLS(bfloat16, uint16_t)
DEFINE_LOOPS(float32, uint32_t)
DEFINE_LOOPS(bfloat16, uint16_t)

typedef struct {
    Py_buffer images, results, winners;
    Shape shape;
    Py_ssize_t size;
} Arguments;

static int within(Py_ssize_t number, Py_ssize_t most)
{
    return 1 <= number && number <= most;
}

static int aligned(const Py_buffer *buffer, Py_ssize_t size)
{
    return (uintptr_t)buffer->buf % (size_t)size == 0;
}

/* Whether the buffers hold just such images, in whole and aligned numbers; if so, fill in the shape. */
static int fits(Arguments *a, Py_ssize_t height, Py_ssize_t width, Py_ssize_t channels)
{
    const Py_ssize_t most = 1 << 15;
    const int sane = within(height, most) && within(width, most) && within(channels, most);
    if (!sane || (a->size != 2 && a->size != 4))
        return 0;
    const int64_t image = (int64_t)height * width * channels * a->size;
    const int64_t pooled = (int64_t)(height / 2) * (width / 2) * channels;
    const int64_t batch = a->images.len / image;
    a->shape = (Shape){(size_t)batch, (size_t)height, (size_t)width, (size_t)channels};
    return batch > 0 && a->images.len == batch * image && a->winners.len == batch * pooled &&
           a->results.len == batch * pooled * a->size && aligned(&a->images, a->size) &&
           aligned(&a->results, a->size);
}

static void release(Arguments *a)
{
    PyBuffer_Release(&a->images);
    PyBuffer_Release(&a->results);
    PyBuffer_Release(&a->winners);
}

/* Fill in the arguments by a format; false with an exception if they are wrong. */
static int take(PyObject *args, const char *format, Arguments *a)
{
    Py_ssize_t height, width, channels;
    if (!PyArg_ParseTuple(args, format, &a->images, &a->results, &a->winners, &a->size, &height, &width,
                          &channels))
        return 0;
    if (fits(a, height, width, channels))
        return 1;
    PyErr_SetString(PyExc_ValueError, "the buffers are not those of such images");
    release(a);
    return 0;
}

typedef void (*Loop)(void *images, void *results, uint8_t *winners, Shape shape);

/* Take the arguments, and run the loop for their kind of number. */
static PyObject *run(PyObject *args, const char *format, Loop float32, Loop bfloat16)
{
    Arguments a;
    if (!take(args, format, &a))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    (a.size == 4 ? float32 : bfloat16)(a.images.buf, a.results.buf, a.winners.buf, a.shape);
    Py_END_ALLOW_THREADS
    release(&a);
    Py_RETURN_NONE;
}

static PyObject *forward(PyObject *self, PyObject *args)
{
    return run(args, "y*w*w*nnnn", forward_float32, forward_bfloat16);
}

static PyObject *backward(PyObject *self, PyObject *args)
{
    return run(args, "w*y*y*nnnn", backward_float32, backward_bfloat16);
}

#define ARGUMENTS "(images, results, winners, item_bytes, height, width, channels)"

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS, "Fill results and winners: " ARGUMENTS},
    {"backward", backward, METH_VARARGS, "Fill the gradient of the images: " ARGUMENTS},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_max_pool", .m_doc = "2x2 max-pooling in C.", .m_methods = methods,
};

PyMODINIT_FUNC PyInit__max_pool(void)
{
    return PyModuleDef_Init(&module_def);
}
