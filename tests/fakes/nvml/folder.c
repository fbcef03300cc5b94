/* Reads the folder, laid out as runner/gpu/sim/state.py and faults.py describe. Writes nothing. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"

static FILE *open_file(const char *name) {
    char path[4096];
    const char *folder = getenv("FAKE_NVML_DIR");
    if (!folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "re");
}

int fault(const char *who, const char *what, char rest[64]) {
    char line[256], gpu_word[32], what_word[32];
    int found = 0, used;
    FILE *file = open_file("faults.conf");
    rest[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %31s%n", gpu_word, what_word, &used) < 2) continue;
        if (strcmp(gpu_word, who) || strcmp(what_word, what)) continue;
        found = 1;
        if (sscanf(line + used, " %63[^\n]", rest) < 1) rest[0] = 0;
    }
    if (file) fclose(file);
    return found;
}

static int device_fault(int index, const char *what, char rest[64]) {
    char who[16];
    snprintf(who, sizeof who, "%d", index);
    return fault(who, what, rest);
}

int says(int index, const char *what, const char *word) {
    char rest[64];
    return device_fault(index, what, rest) && !strcmp(rest, word);
}

static int code_of(const char *word) { return !strcmp(word, "na") ? NOT_SUPPORTED : atoi(word); }

static void wait_while_blocked(const char *who) {
    char rest[64];
    while (fault(who, "block", rest) || fault("all", "block", rest)) usleep(20000);
}

int loaded_driver(void) {
    char rest[64];
    return fault("all", "loaded", rest) ? atoi(rest) : 1;
}

int session_fault(int opening) {
    char rest[64];
    wait_while_blocked("all");
    if (fault("all", "code", rest)) return atoi(rest);
    if (opening && fault("all", "init", rest)) return atoi(rest);
    return SUCCESS;
}

int query_fault(int index, const char *what) {
    char who[16], rest[64];
    snprintf(who, sizeof who, "%d", index);
    wait_while_blocked(who);
    if (fault(who, "lost", rest)) return GPU_IS_LOST;
    if (fault("all", "code", rest) || fault(who, "code", rest)) return atoi(rest);
    return fault(who, what, rest) ? code_of(rest) : SUCCESS;
}

int answer(int index, const char *what, int usual) {
    char rest[64];
    int value;
    return device_fault(index, what, rest) && sscanf(rest, "is %d", &value) == 1 ? value : usual;
}

int gpus(gpu found[MAX_GPUS]) {
    char line[512];
    int count = 0;
    FILE *file = open_file("gpus.conf");
    while (file && count < MAX_GPUS && fgets(line, sizeof line, file)) {
        gpu *g = &found[count];
        if (sscanf(line, "%d %95s %llu %llu %95[^\n]", &g->index, g->uuid, &g->total, &g->reserved, g->name) == 5)
            count++;
    }
    if (file) fclose(file);
    return count;
}

int find(int index, gpu *wanted) {
    gpu all[MAX_GPUS];
    int count = gpus(all);
    for (int i = 0; i < count; i++)
        if (all[i].index == index) {
            *wanted = all[i];
            return 1;
        }
    return 0;
}

/* A process holds memory until it is dead; one that only waits to be reaped is. */
static int lives(uint pid, ull started) {
    char path[64], text[1024], state, *after_name;
    ull real = 0;
    if (!started) return 1; /* of another PID namespace */
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    after_name = strrchr(text, ')');
    if (!after_name) return 0;
    if (sscanf(after_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &real) != 2)
        return 0;
    return state != 'Z' && state != 'X' && real == started;
}

int claims(int index, claim found[MAX_PROCESSES]) {
    char path[4096], prefix[16];
    struct dirent *entry;
    int count = 0;
    const char *folder = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/procs", folder ? folder : "");
    snprintf(prefix, sizeof prefix, "%d.", index);
    DIR *listing = opendir(path);
    while (listing && count < MAX_PROCESSES && (entry = readdir(listing))) {
        ull started;
        claim *c = &found[count];
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, prefix, strlen(prefix))) continue;
        if (length > 4 && !strcmp(entry->d_name + length - 4, ".tmp")) continue;
        snprintf(path, sizeof path, "%s/procs/%s", folder ? folder : "", entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fscanf(file, "%u %llu %llu %u", &c->pid, &started, &c->mib, &c->load) == 4 && lives(c->pid, started))
            count++;
        fclose(file);
    }
    if (listing) closedir(listing);
    return count;
}

ull used_mib(int index) {
    claim all[MAX_PROCESSES];
    ull sum = 0;
    int count = claims(index, all);
    for (int i = 0; i < count; i++) sum += all[i].mib;
    return sum;
}

uint load(int index) {
    claim all[MAX_PROCESSES];
    uint sum = 0;
    int count = claims(index, all);
    for (int i = 0; i < count; i++) sum += all[i].load;
    return sum > 100 ? 100 : sum;
}
