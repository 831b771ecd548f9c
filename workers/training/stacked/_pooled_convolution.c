/* A convolution of one channel with 2x2 max-pooling: see `workers.training.stacked.pooled_convolution`.
 *
 * That checks the arguments; what is checked here is only what memory safety needs. The loops run without the
 * interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "_window_loops.h"

enum { IMAGES, KERNELS, BIASES, RESULTS, WINNERS, COUNT };

static const struct {
    int dimensions;
    Py_ssize_t item_bytes;
} KINDS[COUNT] = {{4, 4}, {4, 4}, {2, 4}, {5, 4}, {5, 1}};

static int is_of_kind(const Py_buffer *buffer, int i)
{
    int aligned = (uintptr_t)buffer->buf % (uintptr_t)KINDS[i].item_bytes == 0;
    for (int d = 0; i == IMAGES && d < buffer->ndim; d++)
        aligned = aligned && buffer->strides[d] % KINDS[i].item_bytes == 0;
    return aligned && buffer->ndim == KINDS[i].dimensions && buffer->itemsize == KINDS[i].item_bytes;
}

static int has_shape(const Py_buffer *buffer, const Py_ssize_t *shape)
{
    return memcmp(buffer->shape, shape, (size_t)buffer->ndim * sizeof *shape) == 0;
}

/* Whether the arrays belong together; if so, fill in what is known of them. */
static int fits(const Py_buffer *buffers, Arrays *a)
{
    for (int i = 0; i < COUNT; i++)
        if (!is_of_kind(&buffers[i], i))
            return 0;
    const Py_ssize_t *images = buffers[IMAGES].shape, *strides = buffers[IMAGES].strides;
    const Py_ssize_t rows = buffers[KERNELS].shape[1], columns = buffers[KERNELS].shape[2];
    const Py_ssize_t channels = buffers[KERNELS].shape[3];
    if (rows < 1 || columns < 1 || rows > MOST_TAPS || columns > MOST_TAPS || rows * columns > MOST_TAPS ||
        strides[3] != sizeof(float))
        return 0;
    const Py_ssize_t high = (images[2] - rows + 1) / 2, wide = (images[3] - columns + 1) / 2;
    const Py_ssize_t kernels[] = {images[0], rows, columns, channels}, biases[] = {images[0], channels};
    const Py_ssize_t results[] = {images[1], high, wide, images[0], channels};
    if (!has_shape(&buffers[KERNELS], kernels) || !has_shape(&buffers[BIASES], biases) ||
        !has_shape(&buffers[RESULTS], results) || !has_shape(&buffers[WINNERS], results))
        return 0;
    *a = (Arrays){
        buffers[IMAGES].buf, buffers[KERNELS].buf, buffers[BIASES].buf, buffers[RESULTS].buf,
        buffers[WINNERS].buf, strides[0] / 4, strides[1] / 4, strides[2] / 4, (size_t)images[0],
        (size_t)images[1], (size_t)rows, (size_t)columns, (size_t)channels, (size_t)high, (size_t)wide,
    };
    return 1;
}

/* Take all arrays, or none with an exception. */
static int take(PyObject *const *objects, Py_buffer *buffers, enum Direction direction)
{
    for (int i = 0; i < COUNT; i++) {
        const int filled = direction == BACKWARD ? i == KERNELS || i == BIASES : i == RESULTS || i == WINNERS;
        const int flags = (i == IMAGES ? PyBUF_STRIDES : PyBUF_ND) | (filled ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(objects[i], &buffers[i], flags) == 0)
            continue;
        while (i > 0)
            PyBuffer_Release(&buffers[--i]);
        return 0;
    }
    return 1;
}

static PyObject *pass(PyObject *const *objects, enum Direction direction)
{
    Py_buffer buffers[COUNT];
    Arrays a;
    if (!take(objects, buffers, direction))
        return NULL;
    const int all_fit = fits(buffers, &a);
    if (all_fit) {
        Py_BEGIN_ALLOW_THREADS
        run(&a, direction);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "the arrays are not those of such a convolution");
    }
    for (int i = 0; i < COUNT; i++)
        PyBuffer_Release(&buffers[i]);
    if (!all_fit)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *forward(PyObject *self, PyObject *args)
{
    PyObject *o[COUNT];
    int relu;
    if (!PyArg_ParseTuple(args, "OOOOOp", &o[0], &o[1], &o[2], &o[3], &o[4], &relu))
        return NULL;
    return pass(o, relu ? FORWARD_WITH_RELU : FORWARD);
}

static PyObject *backward(PyObject *self, PyObject *args)
{
    PyObject *o[COUNT];
    if (!PyArg_ParseTuple(args, "OOOOO", &o[0], &o[1], &o[2], &o[3], &o[4]))
        return NULL;
    return pass(o, BACKWARD);
}

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS,
     "Fill results and winners: (images, kernels, biases, results, winners, relu)"},
    {"backward", backward, METH_VARARGS,
     "Fill the gradients of kernels and biases: (images, kernels, biases, gradient, winners)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_pooled_convolution",
    .m_doc = "A convolution with pooling in C.",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__pooled_convolution(void)
{
    return PyModuleDef_Init(&module_def);
}
