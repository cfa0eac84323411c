/* A planted leak, for LD_PRELOAD: a process that starts another one by fork() keeps LEAK_BYTES each time for good.

Triton starts one process for each model of its Python backend. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

pid_t fork(void)
{
    static pid_t (*real_fork)(void);
    const char *size = getenv("LEAK_BYTES");
    if (real_fork == NULL)
        real_fork = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    if (size != NULL) {
        char *volatile kept = malloc(strtoul(size, NULL, 10));
        if (kept != NULL)
            memset(kept, 1, strtoul(size, NULL, 10));
    }
    return real_fork();
}
