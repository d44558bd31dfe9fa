/* Eigen's TensorEvaluator::run: one loop for tensors of all sizes. Large results are not used again soon; small ones are
   read at once by the next operation. The paper's verdict: clean. */
#include <stdlib.h>

#define LARGE (2 << 20)
#define SMALL 30
#define PACKET 4

__attribute__((noinline)) static void tensor_run(double *to, const double *a, const double *b, long n) {
    for (long i = 0; i + PACKET <= n; i += PACKET) {
        to[i] = a[i] + b[i];
        to[i + 1] = a[i + 1] + b[i + 1];
        to[i + 2] = a[i + 2] + b[i + 2];
        to[i + 3] = a[i + 3] + b[i + 3];
    }
    for (long i = n - n % PACKET; i < n; i++) to[i] = a[i] + b[i];
}

__attribute__((noinline)) static double reduce(const double *of, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++) sum += of[i];
    return sum;
}

int main(void) {
    double *a = calloc(LARGE, sizeof *a), *b = calloc(LARGE, sizeof *b), *large = malloc(LARGE * sizeof *large);
    double *small = aligned_alloc(4096, (size_t)40000 * 4096);
    double sum = 0;
    tensor_run(large, a, b, LARGE / 8);
    for (long i = 0; i < 40000; i++) {
        double *to = small + i * 512;
        tensor_run(to, a, b, SMALL);
        sum += reduce(to, SMALL);
    }
    return sum == 1 ? 1 : 0;
}
