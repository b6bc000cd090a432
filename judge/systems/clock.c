/* The wall clock of one process, as many seconds off as the file JUDGE_CLOCK says (8 bytes, mapped). Monotonic clocks stay. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none;
static volatile int64_t *offset_s = &none;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("JUDGE_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return;
    void *seen = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
    if (seen != MAP_FAILED) offset_s = seen;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec seen;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &seen);
    now->tv_sec = seen.tv_sec;
    now->tv_usec = seen.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec seen;
    clock_gettime(CLOCK_REALTIME, &seen);
    if (now) *now = seen.tv_sec;
    return seen.tv_sec;
}
