// How many tests run at once, and where their files are.
//
// Swift Testing starts all of them at once: a thousand tests then share two threads, each step of
// each waits for a step of all others, and what measures time measures the queue. The width is read
// from the environment when the tests begin, so it is set when their program is loaded, whatever
// starts it. `SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=… swift test` still chooses another.
//
// Each database consists of 500 files, which a file system on a disk takes a third of PostgreSQL's
// processor time to create. So they are in memory, where there is room; `TMPDIR=… swift test`
// chooses another place.

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/statvfs.h>

// Enough that tests which sleep or ask PostgreSQL leave no processor idle, and few enough that a
// step comes within a second.
static const char *const width = "24";

// Linux's file system in memory. The tests use less than a gigabyte at a time.
static const char *const memory = "/dev/shm";
static const unsigned long long room = 4ULL << 30;

__attribute__((constructor)) static void setUp(void) {
  setenv("SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH", width, 0);
#ifdef __linux__
  struct statvfs found;
  // Some tests run what they write.
  if (statvfs(memory, &found) == 0 && !(found.f_flag & ST_NOEXEC) &&
      (unsigned long long)found.f_bavail * found.f_frsize >= room) {
    setenv("TMPDIR", memory, 0);
  }
#endif
}
