// How many tests run at once.
//
// Swift Testing starts all of them at once: a thousand tests then share two threads, each step of
// each waits for a step of all others, and what measures time measures the queue. The width is read
// from the environment when the tests begin, so it is set when their program is loaded, whoever
// starts it. `SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=… swift test` still chooses another.

#include <stdlib.h>

// Enough that tests which sleep or ask PostgreSQL leave no processor idle, and few enough that a
// step comes within a second.
static const char *const width = "24";

__attribute__((constructor)) static void setTestWidth(void) {
  setenv("SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH", width, 0);
}
