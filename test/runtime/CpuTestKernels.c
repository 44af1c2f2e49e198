/* Kernels as the compiler's emitter names and types them: pointers to inputs, then outputs; rows.
 */
#include <stdint.h>

/* out[i] = 2 * in[i]; a row is an element. */
void twice(void *const *pointers, int64_t begin, int64_t end) {
  const float *in = pointers[0];
  float *out = pointers[1];
  for (int64_t i = begin; i < end; ++i)
    out[i] = 2 * in[i];
}

/* Adds 1 to each row's count: every row must be run exactly once. */
void count(void *const *pointers, int64_t begin, int64_t end) {
  int32_t *out = pointers[0];
  for (int64_t i = begin; i < end; ++i)
    out[i] += 1;
}

/* out[i] = i < 3 as a condition for loops: out[0] = (in[0] < 3), and in[0] counts on. */
void step(void *const *pointers, int64_t begin, int64_t end) {
  float *counter = pointers[0];
  uint8_t *more = pointers[1];
  for (int64_t i = begin; i < end; ++i) {
    counter[i] += 1;
    more[i] = counter[i] < 3;
  }
}
