/* Loops over rows of at least WIDTH classes; included once for float and for double.

   As in winners.h, what is left of a row after WIDTH, 2 WIDTH, ... entries is worked on with entries before it. Sums
   count each entry once. */

#define AGAIN(classes) (WIDTH - (classes) % WIDTH) /* so many of the last WIDTH entries were seen before */
#define FOR_LANES_OF_ROW for (BITS r = 0; r < WIDTH; r++)

/* Rows that are taken through each step of a kernel together: the steps of a single row wait for each other. Of long rows
   fewer stay in the cache. */
#define TOGETHER 16
#define ROWS_TOGETHER(classes) ((classes) <= 1024 ? TOGETHER : 1)
#define FOR_ROWS for (Size r = 0; r < rows; r++)

/* Sum of WIDTH partial sums, added in pairs: a compiler that may not change the order of sums would add them one by one,
   which takes longer than the exponentials of a row of 100 entries. */
INLINE REAL NAMED(sum_of_lanes)(const REAL *a) {
    REAL b[WIDTH / 2], c[WIDTH / 4];
    SIMD()
    for (Size r = 0; r < WIDTH / 2; r++) b[r] = a[r] + a[r + WIDTH / 2];
    SIMD()
    for (Size r = 0; r < WIDTH / 4; r++) c[r] = b[r] + b[r + WIDTH / 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Write exp(beta (x - top)) for WIDTH entries and add those from `seen` on to the partial sums. */
INLINE void NAMED(exp_lanes)(const REAL *x, REAL beta, REAL top, BITS seen, REAL *to, REAL *sum) {
    SIMD()
    FOR_LANES_OF_ROW {
        to[r] = EXP(beta * (x[r] - top));
        sum[r] += r >= seen ? to[r] : 0;
    }
}

/* Write exp(beta (x - top)) for a row, its last WIDTH entries to `tail`, and return the sum; `to` may be the row. */
INLINE REAL NAMED(exp_row)(const REAL *row, Size classes, REAL beta, REAL top, REAL *to, REAL *tail) {
    Size whole = WHOLE(classes);
    REAL sum[WIDTH] = {0};
    if (whole < classes) NAMED(exp_lanes)(row + classes - WIDTH, beta, top, (BITS)AGAIN(classes), tail, sum);
    for (Size j = 0; j < whole; j += WIDTH) NAMED(exp_lanes)(row + j, beta, top, 0, to + j, sum);
    return NAMED(sum_of_lanes)(sum);
}

/* Sum of exp(x - top) over a row. */
INLINE REAL NAMED(exp_sum)(const REAL *row, Size classes, REAL top) {
    Size whole = WHOLE(classes);
    REAL sum[WIDTH] = {0}, e[WIDTH];
    for (Size j = 0; j < whole; j += WIDTH) NAMED(exp_lanes)(row + j, 1, top, 0, e, sum);
    if (whole < classes) NAMED(exp_lanes)(row + classes - WIDTH, 1, top, (BITS)AGAIN(classes), e, sum);
    return NAMED(sum_of_lanes)(sum);
}

/* to = scale e + shift, with plain exp(x - top) added if `both`, no less than TINY; count the largest entries from
   `seen` on. */
INLINE void NAMED(scale_lanes)(
    const REAL *e, const REAL *x, REAL top, REAL scale, int both, REAL plain, REAL shift, BITS seen, REAL *to,
    BITS *ties
) {
    REAL largest = both ? scale + plain + shift : scale + shift;
    SIMD()
    FOR_LANES_OF_ROW {
        REAL v = both ? scale * e[r] + plain * EXP(x[r] - top) + shift : scale * e[r] + shift;
        ties[r] += r >= seen && v >= largest ? 1 : 0;
        to[r] = v > TINY ? v : TINY;
    }
}

/* The same for a row that exp_row has written to `to` and `tail`; return how many entries are the largest. */
INLINE BITS NAMED(scale_row)(
    REAL *to, Size classes, const REAL *tail, const REAL *x, REAL top, REAL scale, int both, REAL plain, REAL shift
) {
    Size whole = WHOLE(classes), last = classes - WIDTH;
    BITS ties[WIDTH] = {0}, all = 0;
    for (Size j = 0; j < whole; j += WIDTH)
        NAMED(scale_lanes)(to + j, x + j, top, scale, both, plain, shift, 0, to + j, ties);
    if (whole < classes) {
        BITS seen = (BITS)AGAIN(classes);
        NAMED(scale_lanes)(tail, x + last, top, scale, both, plain, shift, seen, to + last, ties);
    }
    SIMD(reduction(+ : all))
    FOR_LANES_OF_ROW all += ties[r];
    return all;
}

/* Logarithms of numbers from 1 on, for up to TOGETHER rows. */
INLINE void NAMED(logarithms)(REAL *numbers, Size rows) {
    for (Size r = rows; r < TOGETHER; r++) numbers[r] = 1;
    SIMD()
    for (Size r = 0; r < TOGETHER; r++) numbers[r] = (REAL)log_from_1((double)numbers[r]);
}

/* The largest entries of rows, and the logarithms of the sums of exponentials below them. */
INLINE void NAMED(tops_and_totals)(const REAL *from, Size rows, Size classes, REAL *top, REAL *total) {
    FOR_ROWS top[r] = NAMED(row_max)(from + r * classes, classes);
    FOR_ROWS total[r] = NAMED(exp_sum)(from + r * classes, classes, top[r]);
    NAMED(logarithms)(total, rows);
}

/* Whether `x` has one largest entry, and `out` has its own in the same place: the place itself does not matter. */
INLINE int NAMED(clear_winner)(const REAL *x, const REAL *out, Size classes) {
    Size whole = WHOLE(classes), again = AGAIN(classes);
    REAL top = NAMED(row_max)(x, classes), kept = -INFINITY, other = -INFINITY;
    const REAL *last = x + classes - WIDTH, *last_out = out + classes - WIDTH;
    BITS ties = 0;
    SIMD(reduction(max : kept, other) reduction(+ : ties))
    for (Size j = 0; j < whole; j++) {
        REAL here = x[j] == top ? out[j] : -INFINITY, there = x[j] == top ? -INFINITY : out[j];
        kept = here > kept ? here : kept;
        other = there > other ? there : other;
        ties += x[j] == top ? 1 : 0;
    }
    if (whole < classes) {
        SIMD(reduction(max : kept, other) reduction(+ : ties))
        FOR_WIDTH {
            REAL here = last[r] == top ? last_out[r] : -INFINITY, there = last[r] == top ? -INFINITY : last_out[r];
            kept = here > kept ? here : kept;
            other = there > other ? there : other;
            ties += r >= again && last[r] == top ? 1 : 0;
        }
    }
    return ties == 1 && kept > other;
}
