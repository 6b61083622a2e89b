/* The compiled kernels as a Python module: arrays come in through the buffer protocol, the GIL is released meanwhile.

   Python (compiled.py beside this folder) makes arrays of the right shapes and types; sizes are checked here all the
   same, so that no mistake there can reach beyond an array. The limited API makes one file serve Python 3.11 and all
   later versions. */

#define Py_LIMITED_API 0x030b0000
#include <Python.h>

typedef Py_ssize_t Size;
typedef Py_ssize_t Index;

#include "numbers.h"

#define REAL float
#define SUFFIX f
#define BITS int32_t
#define TINY FLT_MIN
#define NEXT(value) nextafterf(value, INFINITY)
#include "rows.h"
#undef REAL
#undef SUFFIX
#undef BITS
#undef TINY
#undef NEXT

#define REAL double
#define SUFFIX d
#define BITS int64_t
#define TINY DBL_MIN
#define NEXT(value) nextafter(value, INFINITY)
#include "rows.h"

#include "logistic.h"
#include "order.h"
#include "bins.h"

/* One argument of a kernel: an array, or a number. */
typedef struct {
    Py_buffer view;
    int held;     /* whether `view` must be released */
    void *data;   /* NULL for None */
    Size size;    /* entries */
    Size rows, columns;
    double number;
    Size whole;
} Argument;

#define MOST_ARGUMENTS 14

static void release(Argument *given, int count) {
    for (int k = 0; k < count; k++)
        if (given[k].held) PyBuffer_Release(&given[k].view);
}

/* Read one argument by its letter. Arrays: x float or double, d double, n index, i int32, b byte; upper case if it is
   written to, * after it if it may be None. Numbers: # real, + whole. `single` is set by the first x: all are alike. */
static int read_argument(PyObject *object, char kind, int optional, Argument *to, int *single) {
    memset(to, 0, sizeof *to);
    if (kind == '#') {
        to->number = PyFloat_AsDouble(object);
        return !PyErr_Occurred();
    }
    if (kind == '+') {
        to->whole = PyLong_AsSsize_t(object);
        return !PyErr_Occurred();
    }
    if (optional && object == Py_None) return 1;
    int written = kind >= 'A' && kind <= 'Z';
    char letter = (char)(written ? kind - 'A' + 'a' : kind);
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &to->view, flags) != 0) return 0;
    to->held = 1;
    const char *format = to->view.format ? to->view.format : "B";
    if (*format == '<' || *format == '=' || *format == '@') format++;
    Size width = to->view.itemsize;
    int fits = 0;
    if (letter == 'x') {
        int is_single = *format == 'f';
        fits = is_single || *format == 'd';
        if (*single < 0) *single = is_single;
        fits = fits && *single == is_single;
    } else if (letter == 'd') fits = *format == 'd';
    else if (letter == 'n') fits = strchr("lqn", *format) && width == sizeof(Index);
    else if (letter == 'i') fits = strchr("il", *format) && width == 4;
    else if (letter == 'b') fits = strchr("B?b", *format) && width == 1;
    if (!fits) {
        PyErr_Format(PyExc_TypeError, "an array of type %s where a kernel needs another", format);
        return 0;
    }
    to->data = to->view.buf;
    to->size = to->view.len / width;
    to->rows = to->view.ndim > 0 ? to->view.shape[0] : 1;
    to->columns = to->view.ndim > 1 ? to->view.shape[1] : 1;
    return 1;
}

static int read_arguments(
    PyObject *const *args, Py_ssize_t count, const char *kinds, Argument *given, int *single
) {
    int k = 0;
    *single = -1;
    for (const char *kind = kinds; *kind; kind++) {
        int optional = kind[1] == '*';
        if (k == count || !read_argument(args[k], *kind, optional, given + k, single)) {
            if (k == count) PyErr_SetString(PyExc_TypeError, "too few arguments for a kernel");
            release(given, k + (k < count));
            return 0;
        }
        k++;
        if (optional) kind++;
    }
    return 1;
}

/* A Python function that reads its arguments, checks their sizes, and runs `call` without the GIL. */
#define KERNEL(name, count, kinds, sizes_fit, call)                                                      \
    static PyObject *py_##name(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {               \
        Argument g[MOST_ARGUMENTS];                                                                      \
        int single;                                                                                      \
        (void)self;                                                                                      \
        if (n_args != count) return PyErr_Format(PyExc_TypeError, #name " takes " #count " arguments");  \
        if (!read_arguments(args, n_args, kinds, g, &single)) return NULL;                               \
        if (!(sizes_fit)) {                                                                              \
            release(g, count);                                                                           \
            return PyErr_Format(PyExc_ValueError, "the shapes of the arrays for " #name " do not fit");  \
        }                                                                                                \
        Size result = -1;                                                                                \
        Py_BEGIN_ALLOW_THREADS                                                                           \
        call;                                                                                            \
        Py_END_ALLOW_THREADS                                                                             \
        release(g, count);                                                                               \
        if (result >= 0) return PyLong_FromSsize_t(result);                                              \
        Py_RETURN_NONE;                                                                                  \
    }

#define FLOATS(k) ((float *)g[k].data)
#define DOUBLES(k) ((double *)g[k].data)
#define INDICES(k) ((Index *)g[k].data)
#define INTS(k) ((int32_t *)g[k].data)
#define BYTES(k) ((uint8_t *)g[k].data)

/* `x` is n x classes; labels are checked to be classes, so that no row is read beyond its end. */
#define N (g[0].rows)
#define CLASSES (g[0].columns)
#define TABLE (CLASSES > 0 && g[0].size == N * CLASSES)
#define SAME(k) (g[k].size == g[0].size)

static int are_labels(const Argument *labels, Size n, Size classes) {
    const Index *y = labels->data;
    if (labels->size != n) return 0;
    for (Size i = 0; i < n; i++)
        if (y[i] < 0 || y[i] >= classes) return 0;
    return 1;
}

KERNEL(extremes, 2, "xD", TABLE && N > 0 && g[1].size == 4,
    if (single) extremes_f(FLOATS(0), N, CLASSES, DOUBLES(1));
    else extremes_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

KERNEL(leads_into, 2, "xD", TABLE && SAME(1),
    if (single) leads_into_f(FLOATS(0), N, CLASSES, DOUBLES(1));
    else leads_into_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

KERNEL(normalise, 2, "D#", TABLE, result = normalise(DOUBLES(0), N, CLASSES, g[1].number))

KERNEL(winners, 2, "xN", TABLE && g[1].size == N,
    if (single) winners_f(FLOATS(0), N, CLASSES, INDICES(1));
    else winners_d(DOUBLES(0), N, CLASSES, INDICES(1)))

KERNEL(maxima, 2, "xX", TABLE && g[1].size == N,
    if (single) maxima_f(FLOATS(0), N, CLASSES, FLOATS(1));
    else maxima_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

KERNEL(sums, 2, "xX", TABLE && g[1].size == N,
    if (single) sums_f(FLOATS(0), N, CLASSES, FLOATS(1));
    else sums_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

/* z, y (n), sums (3 x bins) */
KERNEL(add_to_bins, 3, "dbD", SAME(1) && g[2].rows == 3 && g[2].columns > 0 && g[2].size == 3 * g[2].columns,
    add_to_bins(DOUBLES(0), BYTES(1), g[0].size, g[2].columns, DOUBLES(2)))

/* x, low, cells of the fine range, how much wider the others are, values at the nodes, out */
KERNEL(add_deviation, 6, "d#+#dD", SAME(5) && g[2].whole > 0 && g[4].size > g[2].whole,
    add_deviation(DOUBLES(0), g[0].size, g[1].number, g[2].whole, g[3].number, DOUBLES(4), g[4].size, DOUBLES(5)))

KERNEL(keep_winners, 2, "xX", TABLE && SAME(1),
    if (single) result = keep_winners_f(FLOATS(0), N, CLASSES, FLOATS(1));
    else result = keep_winners_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

#define WEIGHT(k) ((float)g[k].number)
KERNEL(mixture_into, 6, "x####X", TABLE && SAME(5),
    if (single)
        mixture_into_f(FLOATS(0), N, CLASSES, WEIGHT(1), WEIGHT(2), WEIGHT(3), WEIGHT(4), FLOATS(5));
    else
        mixture_into_d(
            DOUBLES(0), N, CLASSES, g[1].number, g[2].number, g[3].number, g[4].number, DOUBLES(5)))

KERNEL(nll_rows, 4, "xn#D", TABLE && are_labels(g + 1, N, CLASSES) && g[3].size == 3 * N,
    if (single) nll_rows_f(FLOATS(0), INDICES(1), N, CLASSES, (float)g[2].number, DOUBLES(3));
    else nll_rows_d(DOUBLES(0), INDICES(1), N, CLASSES, g[2].number, DOUBLES(3)))

KERNEL(brier_rows, 6, "xn#+XD",
    TABLE && are_labels(g + 1, N, CLASSES) && g[4].size == CLASSES && g[5].size == (g[3].whole ? 11 : 6) * N,
    if (single)
        brier_rows_f(
            FLOATS(0), INDICES(1), N, CLASSES, (float)g[2].number, (int)g[3].whole, FLOATS(4), DOUBLES(5));
    else
        brier_rows_d(DOUBLES(0), INDICES(1), N, CLASSES, g[2].number, (int)g[3].whole, DOUBLES(4), DOUBLES(5)))

KERNEL(log_softmax_into, 2, "xX", TABLE && SAME(1),
    if (single) log_softmax_into_f(FLOATS(0), N, CLASSES, FLOATS(1));
    else log_softmax_into_d(DOUBLES(0), N, CLASSES, DOUBLES(1)))

/* x, weight, intercept, out */
KERNEL(affine_softmax_into, 4, "xx*xX", TABLE && (!g[1].data || g[1].size == CLASSES) && g[2].size == CLASSES && SAME(3),
    if (single) affine_softmax_into_f(FLOATS(0), N, CLASSES, FLOATS(1), FLOATS(2), FLOATS(3));
    else affine_softmax_into_d(DOUBLES(0), N, CLASSES, DOUBLES(1), DOUBLES(2), DOUBLES(3)))

/* s (classes x m), slope, intercept, p, top (m), total (m); here N is the number of classes */
#define BY_CLASS(k) (g[k].size == N)
#define BY_SAMPLE(k) (g[k].size == CLASSES)
KERNEL(diagonal_softmax_into, 6, "xxxXXD",
    TABLE && BY_CLASS(1) && BY_CLASS(2) && SAME(3) && BY_SAMPLE(4) && BY_SAMPLE(5),
    if (single)
        diagonal_softmax_into_f(FLOATS(0), N, CLASSES, FLOATS(1), FLOATS(2), FLOATS(3), FLOATS(4), DOUBLES(5));
    else
        diagonal_softmax_into_d(DOUBLES(0), N, CLASSES, DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), DOUBLES(5)))

/* s, p (classes x m), slope, intercept, weight (m), mean (m), out (2 x classes) */
KERNEL(diagonal_product, 7, "xxxxx*DD",
    TABLE && SAME(1) && BY_CLASS(2) && BY_CLASS(3) && (!g[4].data || BY_SAMPLE(4)) && BY_SAMPLE(5) &&
        g[6].size == 2 * N,
    if (single)
        diagonal_product_f(
            FLOATS(0), FLOATS(1), N, CLASSES, FLOATS(2), FLOATS(3), FLOATS(4), DOUBLES(5), DOUBLES(6));
    else
        diagonal_product_d(
            DOUBLES(0), DOUBLES(1), N, CLASSES, DOUBLES(2), DOUBLES(3), DOUBLES(4), DOUBLES(5), DOUBLES(6)))

/* s, p (classes x m), weight (m), curved, out (2 or 3 x classes) */
KERNEL(diagonal_sums, 5, "xxx*+D",
    TABLE && SAME(1) && (!g[2].data || BY_SAMPLE(2)) && g[4].size == (g[3].whole ? 3 : 2) * N,
    if (single) diagonal_sums_f(FLOATS(0), FLOATS(1), N, CLASSES, FLOATS(2), (int)g[3].whole, DOUBLES(4));
    else diagonal_sums_d(DOUBLES(0), DOUBLES(1), N, CLASSES, DOUBLES(2), (int)g[3].whole, DOUBLES(4)))

/* x, y, weight (n), beta, slope, intercept, curved, scratch (8 x classes), label (2 x n), out (2 or 3 x classes) */
#define BY_COLUMN(k) (g[k].size == CLASSES)
#define WEIGHTS(k) (!g[k].data || g[k].size == N)
KERNEL(vector_sums, 10, "xnd*#xx+XDD",
    TABLE && are_labels(g + 1, N, CLASSES) && WEIGHTS(2) && BY_COLUMN(4) && BY_COLUMN(5) && g[7].size == 8 * CLASSES &&
        g[8].size == 2 * N && g[9].size == (g[6].whole ? 3 : 2) * CLASSES,
    if (single)
        vector_sums_f(
            FLOATS(0), INDICES(1), N, CLASSES, DOUBLES(2), (float)g[3].number, FLOATS(4), FLOATS(5), (int)g[6].whole,
            FLOATS(7), DOUBLES(8), DOUBLES(9));
    else
        vector_sums_d(
            DOUBLES(0), INDICES(1), N, CLASSES, DOUBLES(2), g[3].number, DOUBLES(4), DOUBLES(5), (int)g[6].whole,
            DOUBLES(7), DOUBLES(8), DOUBLES(9)))

/* x, weight (n), beta, slope, intercept, direction in both, scratch (8 x classes), out (2 x classes) */
KERNEL(vector_product, 9, "xd*#xxxxXD",
    TABLE && WEIGHTS(1) && BY_COLUMN(3) && BY_COLUMN(4) && BY_COLUMN(5) && BY_COLUMN(6) && g[7].size == 8 * CLASSES &&
        g[8].size == 2 * CLASSES,
    if (single)
        vector_product_f(
            FLOATS(0), N, CLASSES, DOUBLES(1), (float)g[2].number, FLOATS(3), FLOATS(4), FLOATS(5), FLOATS(6),
            FLOATS(7), DOUBLES(8));
    else
        vector_product_d(
            DOUBLES(0), N, CLASSES, DOUBLES(1), g[2].number, DOUBLES(3), DOUBLES(4), DOUBLES(5), DOUBLES(6),
            DOUBLES(7), DOUBLES(8)))

#define LABELS (TABLE && are_labels(g + 1, N, CLASSES))
KERNEL(label_rows_of_logits, 4, "xnDD", LABELS && g[2].size == CLASSES && g[3].size == 2 * N,
    if (single) label_rows_of_logits_f(FLOATS(0), INDICES(1), N, CLASSES, DOUBLES(2), DOUBLES(3));
    else label_rows_of_logits_d(DOUBLES(0), INDICES(1), N, CLASSES, DOUBLES(2), DOUBLES(3)))

KERNEL(squared_errors, 3, "xnD", LABELS && g[2].size == N,
    if (single) squared_errors_f(FLOATS(0), INDICES(1), N, CLASSES, DOUBLES(2));
    else squared_errors_d(DOUBLES(0), INDICES(1), N, CLASSES, DOUBLES(2)))

KERNEL(interpolate_into, 9, "x+iiddd#D",
    g[4].size > 0 && g[4].size == g[5].size && g[5].size == g[6].size && g[8].size == g[0].size && g[2].size > 0 &&
        g[2].size == g[3].size,
    if (single)
        interpolate_into_f(
            FLOATS(0), g[0].size, g[1].whole, INTS(2), INTS(3), g[2].size, DOUBLES(4), DOUBLES(5), DOUBLES(6),
            g[7].number, DOUBLES(8));
    else
        interpolate_into_d(
            DOUBLES(0), g[0].size, g[1].whole, INTS(2), INTS(3), g[2].size, DOUBLES(4), DOUBLES(5), DOUBLES(6),
            g[7].number, DOUBLES(8)))

KERNEL(interpolate_columns_into, 7, "xddddnD",
    TABLE && g[1].size == g[2].size && g[2].size == g[3].size && g[4].size == CLASSES && g[5].size == CLASSES + 1 &&
        INDICES(5)[CLASSES] == g[1].size && SAME(6),
    if (single)
        interpolate_columns_into_f(
            FLOATS(0), N, CLASSES, DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), (int64_t *)g[5].data, DOUBLES(6));
    else
        interpolate_columns_into_d(
            DOUBLES(0), N, CLASSES, DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), (int64_t *)g[5].data, DOUBLES(6)))

KERNEL(add_gaps, 10, "xd*++iidDD*D*",
    TABLE && (!g[1].data || g[1].size == N) && g[4].size == g[5].size && g[7].size == g[6].size + 1 &&
        (!g[8].data || g[8].size == g[7].size) && (!g[9].data || g[9].size == g[7].size),
    if (single)
        add_gaps_f(
            FLOATS(0), N, CLASSES, DOUBLES(1), g[2].whole, g[3].whole, INTS(4), INTS(5), g[4].size, DOUBLES(6),
            g[6].size, DOUBLES(7), DOUBLES(8), DOUBLES(9));
    else
        add_gaps_d(
            DOUBLES(0), N, CLASSES, DOUBLES(1), g[2].whole, g[3].whole, INTS(4), INTS(5), g[4].size, DOUBLES(6),
            g[6].size, DOUBLES(7), DOUBLES(8), DOUBLES(9)))

/* x, y, row_weight, logs, low, scale, first, last, doubt, scratch (2 x classes + 1), in_cell, weight, unsure */
KERNEL(add_gaps_of_logits, 13, "xnd*d##ii#IDDB",
    TABLE && are_labels(g + 1, N, CLASSES) && (!g[2].data || g[2].size == N) && g[3].size > 0 &&
        g[6].size == g[7].size && g[9].size == 2 * (CLASSES + 1) && g[10].size == g[6].size &&
        g[11].size == g[3].size + 1 && g[12].size == N,
    if (single)
        add_gaps_of_logits_f(
            FLOATS(0), INDICES(1), N, CLASSES, DOUBLES(2), DOUBLES(3), g[3].size, g[4].number, g[5].number, INTS(6),
            INTS(7), g[6].size - 1, g[8].number, INTS(9), INTS(9) + CLASSES + 1, DOUBLES(10), DOUBLES(11), BYTES(12));
    else
        add_gaps_of_logits_d(
            DOUBLES(0), INDICES(1), N, CLASSES, DOUBLES(2), DOUBLES(3), g[3].size, g[4].number, g[5].number, INTS(6),
            INTS(7), g[6].size - 1, g[8].number, INTS(9), INTS(9) + CLASSES + 1, DOUBLES(10), DOUBLES(11), BYTES(12)))

KERNEL(log_odds_into, 6, "x+#DDD", TABLE && g[3].size == CLASSES && SAME(4) && SAME(5),
    if (single)
        log_odds_into_f(
            FLOATS(0), N, CLASSES, (int)g[1].whole, g[2].number, DOUBLES(3), DOUBLES(4), DOUBLES(5));
    else
        log_odds_into_d(
            DOUBLES(0), N, CLASSES, (int)g[1].whole, g[2].number, DOUBLES(3), DOUBLES(4), DOUBLES(5)))

KERNEL(log_odds_of_two_into, 4, "x#DD", TABLE && CLASSES == 2 && SAME(2) && SAME(3),
    if (single) log_odds_of_two_into_f(FLOATS(0), N, g[1].number, DOUBLES(2), DOUBLES(3));
    else log_odds_of_two_into_d(DOUBLES(0), N, g[1].number, DOUBLES(2), DOUBLES(3)))

/* u (K x m), norm, log_rest (m), lowest, log_not (K x m) */
KERNEL(log_odds_of_columns, 5, "Ddd#D", TABLE && BY_SAMPLE(1) && BY_SAMPLE(2) && SAME(4),
    log_odds_of_columns(DOUBLES(0), N, CLASSES, DOUBLES(1), DOUBLES(2), g[3].number, DOUBLES(4)))

/* first, second, positive (K x m), weight (m), theta (K x 3), targets (2 x K), brier, out (K x 10) */
KERNEL(logistic_sums, 8, "ddbddd+D",
    TABLE && SAME(1) && SAME(2) && g[3].size == CLASSES && g[4].size == 3 * N && g[5].size == 2 * N &&
        g[7].size == 10 * N,
    logistic_sums(
        DOUBLES(0), DOUBLES(1), BYTES(2), DOUBLES(3), N, CLASSES, DOUBLES(4), DOUBLES(5), (int)g[6].whole, DOUBLES(7)))

/* log_p, log_not, p (n x classes), y, theta (F x 3), w, brier, scratch ((2 F + 1) x classes), out */
KERNEL(sigmoid_mixture_rows, 9, "dddndd+DD",
    TABLE && SAME(1) && SAME(2) && are_labels(g + 3, N, CLASSES) && g[4].size == 3 * g[4].rows &&
        (g[5].size == g[4].rows || g[5].size == g[4].rows + 2) && g[7].size == (2 * g[4].rows + 1) * CLASSES &&
        g[8].size == (1 + g[4].size + g[5].size) * N,
    sigmoid_mixture_rows(
        DOUBLES(0), DOUBLES(1), DOUBLES(2), INDICES(3), N, CLASSES, DOUBLES(4), g[4].rows, DOUBLES(5),
        g[5].size > g[4].rows, (int)g[6].whole, DOUBLES(7), DOUBLES(8)))

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    METHOD(extremes), METHOD(leads_into), METHOD(normalise), METHOD(winners), METHOD(maxima), METHOD(sums),
    METHOD(add_deviation), METHOD(add_to_bins), METHOD(keep_winners), METHOD(mixture_into), METHOD(nll_rows),
    METHOD(brier_rows),
    METHOD(log_softmax_into), METHOD(affine_softmax_into), METHOD(diagonal_softmax_into), METHOD(diagonal_product),
    METHOD(diagonal_sums), METHOD(vector_sums), METHOD(vector_product),
    METHOD(label_rows_of_logits), METHOD(squared_errors), METHOD(interpolate_into),
    METHOD(interpolate_columns_into), METHOD(add_gaps), METHOD(add_gaps_of_logits), METHOD(log_odds_into),
    METHOD(log_odds_of_columns), METHOD(log_odds_of_two_into), METHOD(logistic_sums), METHOD(sigmoid_mixture_rows),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mixnmatch._engine.kernels._compiled", "Compiled kernels; see compiled.py.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
