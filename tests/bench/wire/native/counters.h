/* What the kernel has counted: CPU and memory of processes, and how busy the machine was. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { NS_PER_S = 1000000000 };

/* CPU of a process, to the tick. */
static inline int64_t used_ticks_ns(int pid) {
    char path[64];
    long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    const char *form = "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld";
    if (fscanf(file, form, &user, &system) != 2) user = system = 0;
    fclose(file);
    return (user + system) * (NS_PER_S / sysconf(_SC_CLK_TCK));
}

/* CPU of all its threads, to the nanosecond where the kernel tells that. */
static inline int64_t used_ns(int pid) {
    char path[64 + 256];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    int64_t sum = 0;
    if (threads == NULL) return 0;
    for (struct dirent *thread; (thread = readdir(threads));) {
        long long ns;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, thread->d_name);
        FILE *file = thread->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file == NULL) continue;
        if (fscanf(file, "%lld", &ns) == 1) sum += ns;
        fclose(file);
    }
    closedir(threads);
    return sum ? sum : used_ticks_ns(pid);
}

static inline int64_t resident_kib(int pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) && sscanf(line, "VmRSS: %ld", &kib) != 1) {}
    fclose(file);
    return kib;
}

/* Of all cores; what a hypervisor took away counts as busy. */
static inline int64_t machine_ns(void) {
    long long user, nice, system, idle, iowait, irq, soft, steal;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return 0;
    int found = fscanf(file, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &iowait, &irq,
                       &soft, &steal);
    fclose(file);
    return found == 8 ? (user + nice + system + irq + soft + steal) * (NS_PER_S / sysconf(_SC_CLK_TCK)) : 0;
}

#endif
