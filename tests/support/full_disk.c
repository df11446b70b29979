/* Preloaded into a process: the n-th write below a folder fails, as on a full disk. Linux only.
 *
 * With `stays`, later writes fail too, except for as many bytes as deleted files give back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long count, failing;  /* writes so far, and the first that fails; 0: none */
static int stays_full, is_full, code;
static long freed;           /* bytes that deleted files gave back since the disk is full */

void disk_arm(const char *path, long nth, int stays, int error) {
    snprintf(folder, sizeof folder, "%s", path);
    count = 0, failing = nth, stays_full = stays, is_full = 0, freed = 0, code = error;
}

long disk_count(void) { return count; }

static int is_inside(const char *path) {
    size_t length = strlen(folder);
    return length && !strncmp(path, folder, length);
}

/* Bytes of a write that fit; -1 if it fails. */
static ssize_t room(int fd, size_t wanted) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return wanted;
    path[length] = 0;
    if (!is_inside(path)) return wanted;
    count++;
    if (count == failing) {
        is_full = stays_full;
        return -1;
    }
    if (!is_full) return wanted;
    if (!freed) return -1;
    ssize_t fits = wanted < (size_t)freed ? (ssize_t)wanted : freed;
    freed -= fits;
    return fits;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE do { errno = code; return -1; } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t fits = room(fd, size);
    if (fits < 0) REFUSE;
    return NEXT(write)(fd, data, fits);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    size_t size = 0;
    for (int i = 0; i < number; i++) size += parts[i].iov_len;
    if (room(fd, size) != (ssize_t)size) REFUSE;
    return NEXT(writev)(fd, parts, number);
}

static void give_back(const char *path) {
    struct stat found;
    if (is_full && is_inside(path) && !stat(path, &found)) freed += found.st_size;
}

int unlink(const char *path) {
    give_back(path);
    return NEXT(unlink)(path);
}

int rename(const char *from, const char *to) {
    give_back(to);
    return NEXT(rename)(from, to);
}
