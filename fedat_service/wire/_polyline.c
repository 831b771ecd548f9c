/* The polyline codec's C half: the loops of the headers beside this file, as Python objects.
 *
 * `fedat_service.wire.polyline` checks the arguments and words the errors; what is checked here is only what
 * memory safety needs. Every loop runs without the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_polyline_avx2.h"
#include "_polyline_decode.h"
#include "_polyline_encode.h"

/* The loops, built for one kind of machine. */
typedef struct {
    const char *machine;
    ptrdiff_t (*encode)(const float *x, size_t n, double factor, size_t lag, uint8_t *out);
    bool (*quantise)(const float *x, size_t n, double factor, int32_t *q);
    Fault (*scan)(const uint8_t *b, size_t size, size_t count, size_t lag, Sink sink);
} Build;

/* `ATTRIBUTES` make the compiler use a machine's instructions in everything that is inlined here. */
#define DEFINE_BUILD(NAME, ATTRIBUTES, WINDOW_FUNCTION)                                                       \
    ATTRIBUTES static ptrdiff_t encode_##NAME(const float *x, size_t n, double f, size_t lag, uint8_t *out)   \
    {                                                                                                         \
        return encode_any(x, n, f, lag, out);                                                                 \
    }                                                                                                         \
    ATTRIBUTES static bool quantise_##NAME(const float *x, size_t n, double factor, int32_t *q)               \
    {                                                                                                         \
        return quantise_block(x, n, factor, largest_bits(factor), q);                                         \
    }                                                                                                         \
    ATTRIBUTES static Fault scan_##NAME(const uint8_t *b, size_t size, size_t count, size_t lag, Sink sink)   \
    {                                                                                                         \
        return scan_any(b, size, count, lag, sink, WINDOW_FUNCTION);                                          \
    }                                                                                                         \
    static const Build build_##NAME = {#NAME, encode_##NAME, quantise_##NAME, scan_##NAME};

DEFINE_BUILD(portable, , NULL)
#ifdef HAVE_AVX2
DEFINE_BUILD(avx2, AVX2, window_avx2)
#endif

/* A build as a Python object. */
typedef struct {
    PyObject_HEAD
    const Build *build;
} Kernels;

static bool sane(Py_ssize_t lag, double factor)
{
    if (lag < 0 || lag > 2)
        PyErr_Format(PyExc_ValueError, "lag must be 0, 1 or 2, got %zd", lag);
    else if (!(factor >= 1 && factor <= 1e9))
        PyErr_SetString(PyExc_ValueError, "factor must be between 1 and 1e9");
    return !PyErr_Occurred();
}

/* Whether a buffer is an array of `size`-byte numbers that C may read as such. */
static bool whole(const Py_buffer *buffer, size_t size)
{
    if ((uintptr_t)buffer->buf % size || (size_t)buffer->len % size)
        PyErr_Format(PyExc_ValueError, "a buffer must hold whole, aligned %zu-byte numbers", size);
    return !PyErr_Occurred();
}

/* None, or the fault as (kind, index). */
static PyObject *fault_or_none(Fault fault)
{
    static const char *const KINDS[] = {"", "byte", "long", "open", "range", "many", "few"};
    if (fault.kind == FINE)
        Py_RETURN_NONE;
    return Py_BuildValue("(sn)", KINDS[fault.kind], (Py_ssize_t)fault.index);
}

static PyObject *scan(PyObject *self, const Py_buffer *payload, size_t count, Py_ssize_t lag, Sink sink)
{
    Fault fault;
    Py_BEGIN_ALLOW_THREADS
    fault = ((Kernels *)self)->build->scan(payload->buf, (size_t)payload->len, count, (size_t)lag, sink);
    Py_END_ALLOW_THREADS
    return fault_or_none(fault);
}

static PyObject *encode_buffer(const Build *build, const Py_buffer *x, double factor, Py_ssize_t lag)
{
    size_t n = (size_t)x->len / sizeof(float);
    if (n > (PY_SSIZE_T_MAX - sizeof(uint64_t)) / MAX_CHARS)
        return PyErr_NoMemory();
    /* Pages past the end of the text are never touched, and the last line gives them back. */
    PyObject *text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)ENCODED_BOUND(n));
    if (!text)
        return NULL;
    ptrdiff_t size;
    Py_BEGIN_ALLOW_THREADS
    size = build->encode(x->buf, n, factor, (size_t)lag, (uint8_t *)PyBytes_AS_STRING(text));
    Py_END_ALLOW_THREADS
    if (size < 0) {
        Py_DECREF(text);
        Py_RETURN_NONE;
    }
    _PyBytes_Resize(&text, size);
    return text;
}

static PyObject *kernels_encode(PyObject *self, PyObject *args)
{
    Py_buffer x;
    double factor;
    Py_ssize_t lag;
    if (!PyArg_ParseTuple(args, "y*dn", &x, &factor, &lag))
        return NULL;
    PyObject *text = NULL;
    if (sane(lag, factor) && whole(&x, sizeof(float)))
        text = encode_buffer(((Kernels *)self)->build, &x, factor, lag);
    PyBuffer_Release(&x);
    return text;
}

static PyObject *kernels_quantise(PyObject *self, PyObject *args)
{
    Py_buffer x, q;
    double factor;
    if (!PyArg_ParseTuple(args, "y*w*d", &x, &q, &factor))
        return NULL;
    PyObject *fits = NULL;
    if (sane(0, factor) && whole(&x, sizeof(float)) && whole(&q, sizeof(int32_t))) {
        size_t n = (size_t)(x.len < q.len ? x.len : q.len) / sizeof(float);
        bool all;
        Py_BEGIN_ALLOW_THREADS
        all = ((Kernels *)self)->build->quantise(x.buf, n, factor, q.buf);
        Py_END_ALLOW_THREADS
        fits = PyBool_FromLong(all);
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&q);
    return fits;
}

static PyObject *kernels_decode(PyObject *self, PyObject *args)
{
    Py_buffer payload, values;
    double factor;
    Py_ssize_t lag;
    if (!PyArg_ParseTuple(args, "y*w*dn", &payload, &values, &factor, &lag))
        return NULL;
    PyObject *fault = NULL;
    if (sane(lag, factor) && whole(&values, sizeof(float))) {
        Sink sink = {.values = values.buf, .factor = factor};
        fault = scan(self, &payload, (size_t)values.len / sizeof(float), lag, sink);
    }
    PyBuffer_Release(&payload);
    PyBuffer_Release(&values);
    return fault;
}

static PyObject *kernels_check(PyObject *self, PyObject *args)
{
    Py_buffer payload;
    Py_ssize_t count, lag;
    if (!PyArg_ParseTuple(args, "y*nn", &payload, &count, &lag))
        return NULL;
    PyObject *fault = NULL;
    if (count < 0)
        PyErr_Format(PyExc_ValueError, "count must not be negative, got %zd", count);
    else if (sane(lag, 1))
        fault = scan(self, &payload, (size_t)count, lag, (Sink){0});
    PyBuffer_Release(&payload);
    return fault;
}

static PyObject *kernels_add(PyObject *self, PyObject *args)
{
    Py_buffer payload, total;
    double weight;
    Py_ssize_t lag;
    if (!PyArg_ParseTuple(args, "y*w*dn", &payload, &total, &weight, &lag))
        return NULL;
    PyObject *fault = NULL;
    if (sane(lag, 1) && whole(&total, sizeof(double))) {
        Sink sink = {.total = total.buf, .weight = weight};
        fault = scan(self, &payload, (size_t)total.len / sizeof(double), lag, sink);
    }
    PyBuffer_Release(&payload);
    PyBuffer_Release(&total);
    return fault;
}

static PyMethodDef kernels_methods[] = {
    {"encode", kernels_encode, METH_VARARGS, "encode(values, factor, lag) -> bytes, or None if a value does not fit"},
    {"quantise", kernels_quantise, METH_VARARGS, "quantise(values, integers, factor) -> whether all values fit"},
    {"decode", kernels_decode, METH_VARARGS, "decode(payload, values, factor, lag) -> None or (fault, index)"},
    {"check", kernels_check, METH_VARARGS, "check(payload, count, lag) -> None or (fault, index)"},
    {"add", kernels_add, METH_VARARGS, "add(payload, total, weight, lag) -> None or (fault, index)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kernels_slots[] = {
    {Py_tp_doc, "The codec's loops, built for one kind of machine."},
    {Py_tp_methods, kernels_methods},
    {0, NULL},
};

static PyType_Spec kernels_spec = {
    .name = "fedat_service.wire._polyline.Kernels",
    .basicsize = sizeof(Kernels),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kernels_slots,
};

static int put_build(PyObject *builds, PyObject *type, const Build *build)
{
    Kernels *kernels = PyObject_New(Kernels, (PyTypeObject *)type);
    if (!kernels)
        return -1;
    kernels->build = build;
    int result = PyDict_SetItemString(builds, build->machine, (PyObject *)kernels);
    Py_DECREF(kernels);
    return result;
}

/* BUILDS: what this machine can run, by name, the fastest first. */
static int add_builds(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&kernels_spec), *builds = PyDict_New();
    int result = type && builds ? 0 : -1;
#ifdef HAVE_AVX2
    if (!result && machine_has_avx2()) {
        make_places();
        result = put_build(builds, type, &build_avx2);
    }
#endif
    if (!result)
        result = put_build(builds, type, &build_portable);
    if (!result)
        result = PyModule_AddObjectRef(module, "BUILDS", builds);
    Py_XDECREF(type);
    Py_XDECREF(builds);
    return result;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_builds}, {0, NULL}};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_polyline", .m_doc = "The polyline codec's C half.", .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__polyline(void)
{
    return PyModuleDef_Init(&module_def);
}
