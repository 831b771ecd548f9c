/* A step of Adam in one pass: see `workers.training.adam`, whose NumPy half gives the same bits.
 *
 * That checks the arguments; what is checked here is only what memory safety needs. The loop runs without the
 * interpreter's lock. It is built without contraction, so each operation rounds as IEEE 754 says.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>

#include "_machines.h"

typedef struct {
    float decay, shrink, lr, one_minus_beta1, one_minus_beta2, eps;
} Numbers;

BUILT_FOR("avx512f", "avx2")
static void run(float *restrict w, const float *restrict gradient, float *restrict m, float *restrict v,
                Py_ssize_t n, Numbers s)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        const float g = gradient[i] + w[i] * s.decay;
        m[i] += (g - m[i]) * s.one_minus_beta1;
        v[i] += (g * g - v[i]) * s.one_minus_beta2;
        w[i] = w[i] * s.shrink - m[i] * s.lr / (sqrtf(v[i]) + s.eps);
    }
}

static int fits(const Py_buffer *buffer, const Py_buffer *other)
{
    return buffer->len == other->len && buffer->len % sizeof(float) == 0 &&
           (uintptr_t)buffer->buf % sizeof(float) == 0;
}

static PyObject *step(PyObject *self, PyObject *args)
{
    Py_buffer w, g, m, v;
    Numbers s;
    if (!PyArg_ParseTuple(args, "w*y*w*w*ffffff", &w, &g, &m, &v, &s.decay, &s.shrink, &s.lr,
                          &s.one_minus_beta1, &s.one_minus_beta2, &s.eps))
        return NULL;
    const int all_fit = fits(&w, &w) && fits(&g, &w) && fits(&m, &w) && fits(&v, &w);
    if (all_fit) {
        Py_BEGIN_ALLOW_THREADS
        run(w.buf, g.buf, m.buf, v.buf, w.len / (Py_ssize_t)sizeof(float), s);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "the buffers are not of equally many floats");
    }
    PyBuffer_Release(&w);
    PyBuffer_Release(&g);
    PyBuffer_Release(&m);
    PyBuffer_Release(&v);
    if (!all_fit)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"step", step, METH_VARARGS,
     "Move parameter, exp_avg and exp_avg_sq: (parameter, gradient, exp_avg, exp_avg_sq, decay, shrink, "
     "lr, 1 - beta1, 1 - beta2, eps)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_adam", .m_doc = "A step of Adam in C.", .m_methods = methods,
};

PyMODINIT_FUNC PyInit__adam(void)
{
    return PyModuleDef_Init(&module_def);
}
