/* Loops over rows of at least WIDTH classes; included once for float and for double.

   As in winners.h, what is left of a row after WIDTH, 2 WIDTH, ... entries is worked on with entries before it. Sums
   count each entry once. */

#define AGAIN(classes) (WIDTH - (classes) % WIDTH) /* so many of the last WIDTH entries were seen before */

/* Write exp(beta (x - top)) for a row, its last WIDTH entries to `tail`, and return the sum; `to` may be the row. */
INLINE REAL NAMED(exp_row)(const REAL *row, Size classes, REAL beta, REAL top, REAL *to, REAL *tail) {
    Size whole = WHOLE(classes), again = AGAIN(classes);
    const REAL *last = row + classes - WIDTH;
    REAL sum = 0;
    if (whole < classes) {
        SIMD(reduction(+ : sum))
        FOR_WIDTH {
            tail[r] = EXP(beta * (last[r] - top));
            sum += r >= again ? tail[r] : 0;
        }
    }
    SIMD(reduction(+ : sum))
    for (Size j = 0; j < whole; j++) {
        to[j] = EXP(beta * (row[j] - top));
        sum += to[j];
    }
    return sum;
}

/* to = scale to + shift, no less than TINY, for what exp_row has written; return how many entries are the largest. */
INLINE BITS NAMED(scale_row)(REAL *to, Size classes, const REAL *tail, REAL scale, REAL shift) {
    Size whole = WHOLE(classes), again = AGAIN(classes);
    REAL *last = to + classes - WIDTH, largest = scale + shift;
    BITS ties = 0;
    SIMD(reduction(+ : ties))
    for (Size j = 0; j < whole; j++) {
        REAL v = scale * to[j] + shift;
        ties += v >= largest ? 1 : 0;
        to[j] = v > TINY ? v : TINY;
    }
    if (whole == classes) return ties;
    SIMD(reduction(+ : ties))
    FOR_WIDTH {
        REAL v = scale * tail[r] + shift;
        ties += r >= again && v >= largest ? 1 : 0;
        last[r] = v > TINY ? v : TINY;
    }
    return ties;
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

#undef AGAIN
