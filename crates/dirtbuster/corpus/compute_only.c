/* NAS EP, c-ray: arithmetic in registers. Not write-intensive. */
#include <stdio.h>

__attribute__((noinline)) static double iterate(double x, long n) {
    for (long i = 0; i < n; i++) x = x * 3.9 * (1 - x);
    return x;
}

int main(void) {
    double x = 0.3;
    for (int i = 0; i < 1000; i++) x = iterate(x, 10000);
    return x == 1 ? 1 : 0;
}
