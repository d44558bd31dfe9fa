/* NAS FT: cffts1 copies a row into a small scratch area, has it transformed there, and copies the result to XOUT, which
   is not used again soon (a pre-store; the author cleaned). fftz2 works within the scratch area, small, re-read and
   re-written: nothing. */
#include <stdlib.h>

#define ROW 512
#define ROWS 2048

typedef struct { double re, im; } complex;

__attribute__((noinline)) static void fftz2(const complex *x, complex *y, long step) {
    for (long i = 0; i < ROW / 2; i++) {
        complex a = x[i], b = x[i + ROW / 2];
        y[2 * i] = (complex){a.re + b.re, a.im + b.im};
        y[2 * i + 1] = (complex){(a.re - b.re) * step, (a.im - b.im) * step};
    }
}

__attribute__((noinline)) static void cfftz(complex *y1, complex *y2) {
    for (long pass = 0; pass < 8; pass += 2) {
        fftz2(y1, y2, pass);
        fftz2(y2, y1, pass + 1);
    }
}

__attribute__((noinline)) static void cffts1(const complex *x, complex *xout, complex *y1, complex *y2) {
    for (long row = 0; row < ROWS; row++) {
        for (long i = 0; i < ROW; i++) y1[i] = x[row * ROW + i];
        cfftz(y1, y2);
        for (long i = 0; i < ROW; i++) xout[row * ROW + i] = y1[i];
    }
}

int main(void) {
    complex *x = calloc(ROW * ROWS, sizeof *x), *xout = malloc(ROW * ROWS * sizeof *xout);
    complex *y1 = malloc(ROW * sizeof *y1), *y2 = malloc(ROW * sizeof *y2);
    cffts1(x, xout, y1, y2);
    return xout[7].re == 1 ? 1 : 0;
}
