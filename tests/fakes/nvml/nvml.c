/* A libnvidia-ml.so.1 for tests: answers from a folder of text files, named by FAKE_NVML_DIR.
 *
 * The folder is laid out as runner/gpu/sim/state.py and faults.py describe. The library only reads. What it
 * does not have is meant to be missing, so that callers meet an absent symbol. A handle that was seen lost stays
 * lost: only a new one works again, as with a real driver after a reset.
 *
 * -DNO_MEMORY_V2, -DNO_PROCESSES_V3, -DNO_PROCESSES_V2 leave out what older drivers lack. -DBUILD=2 is a library
 * that fits a driver of that number only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"

#define MIB (1024ULL * 1024ULL)
#define NOT_AVAILABLE (~0ULL)
#define FOREIGN_PID_OFFSET 4000000

typedef struct { ull total, free, used; } memory_v1;
typedef struct { uint version; ull total, reserved, free, used; } memory_v2;
typedef struct { uint gpu, memory; } rates;
typedef struct { uint pid; ull used; uint gi, ci; } process_info;
typedef struct { uint version, sensor; int celsius; } temperature_v1;
typedef struct { uint pid; ull when; uint sm, mem, enc, dec; } process_load;
typedef struct {
    char legacy[16];
    uint domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

_Static_assert(sizeof(memory_v1) == 24, "nvmlMemory_t");
_Static_assert(sizeof(memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(process_info) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(temperature_v1) == 12, "nvmlTemperature_v1_t");
_Static_assert(sizeof(process_load) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(pci_info) == 68, "nvmlPciInfo_t");

typedef struct { int index, lost; } handle;

#ifndef BUILD
#define BUILD 1
#endif

static int opened, driver_at_opening;

/* -- the session ------------------------------------------------------------------------------------------ */

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    int code = session_fault(1);
    if (!code && loaded_driver() != BUILD) code = LIB_RM_VERSION_MISMATCH;
    if (code) return code;
    driver_at_opening = loaded_driver();
    opened++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    opened--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "as the test wants it";
}

/* A driver that was unloaded takes its sessions with it. */
static int session(void) {
    if (!opened) return UNINITIALIZED;
    return loaded_driver() == driver_at_opening ? SUCCESS : UNKNOWN;
}

static int about_all(void) {
    int code = session();
    return code ? code : session_fault(0);
}

int nvmlSystemGetDriverVersion(char *text, uint size) {
    char rest[64];
    int code = about_all();
    if (!code) snprintf(text, size, "%s", fault("all", "driver", rest) ? rest : "570.00.01");
    return code;
}

int nvmlSystemGetNVMLVersion(char *text, uint size) {
    int code = about_all();
    if (!code) snprintf(text, size, "12.570.00.01");
    return code;
}

int nvmlDeviceGetCount_v2(uint *count) {
    gpu all[MAX_GPUS];
    int code = about_all();
    if (!code) *count = (uint)gpus(all);
    return code;
}

/* -- one GPU ---------------------------------------------------------------------------------------------- */

static int hand_out(int index, handle **out) {
    gpu g;
    int code = session();
    if (!code) code = find(index, &g) ? query_fault(index, "handle") : INVALID_ARGUMENT;
    if (code) return code;
    *out = calloc(1, sizeof **out); /* never freed: a caller may keep it for ever */
    (*out)->index = index;
    return SUCCESS;
}

static int ask(handle *h, const char *what, gpu *g) {
    int code = session();
    if (code) return code;
    if (!h || !find(h->index, g)) return INVALID_ARGUMENT;
    code = h->lost ? GPU_IS_LOST : query_fault(h->index, what);
    if (code == GPU_IS_LOST) h->lost = 1;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, handle **out) { return hand_out((int)index, out); }

int nvmlDeviceGetHandleByUUID(const char *uuid, handle **out) {
    gpu all[MAX_GPUS];
    int count = gpus(all);
    for (int i = 0; i < count; i++)
        if (!strcmp(all[i].uuid, uuid)) return hand_out(all[i].index, out);
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(handle *h, uint *index) {
    gpu g;
    int code = ask(h, "index", &g);
    if (!code) *index = (uint)g.index;
    return code;
}

int nvmlDeviceGetUUID(handle *h, char *text, uint size) {
    gpu g;
    int code = ask(h, "uuid", &g);
    if (!code) snprintf(text, size, "%s", g.uuid);
    return code;
}

int nvmlDeviceGetName(handle *h, char *text, uint size) {
    gpu g;
    int code = ask(h, "name", &g);
    if (!code) snprintf(text, size, "%s", g.name);
    return code;
}

int nvmlDeviceGetPciInfo_v3(handle *h, pci_info *info) {
    gpu g;
    int code = ask(h, "pci", &g);
    if (code) return code;
    memset(info, 0, sizeof *info);
    info->bus = (uint)g.index + 1;
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(handle *h, memory_v1 *info) {
    gpu g;
    int code = ask(h, "memory", &g);
    if (code) return code;
    ull used = used_mib(g.index) + g.reserved;
    info->total = g.total * MIB;
    info->used = used * MIB;
    info->free = (used > g.total ? 0 : g.total - used) * MIB;
    return SUCCESS;
}

#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(handle *h, memory_v2 *info) {
    gpu g;
    if (info->version != (2U << 24 | sizeof *info)) return ARGUMENT_VERSION_MISMATCH;
    int code = ask(h, "memory", &g);
    if (code) return code;
    ull used = used_mib(g.index);
    info->total = g.total * MIB;
    info->reserved = g.reserved * MIB;
    info->used = used * MIB;
    info->free = (used + g.reserved > g.total ? 0 : g.total - g.reserved - used) * MIB;
    return SUCCESS;
}
#endif

int nvmlDeviceGetUtilizationRates(handle *h, rates *r) {
    gpu g;
    int code = ask(h, "utilization", &g);
    if (code) return code;
    r->gpu = load(g.index);
    r->memory = r->gpu / 2;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(handle *h, int sensor, uint *celsius) {
    gpu g;
    (void)sensor;
    int code = ask(h, "temperature", &g);
    if (!code) *celsius = 35 + 40 * load(g.index) / 100;
    return code;
}

int nvmlDeviceGetTemperatureV(handle *h, temperature_v1 *t) {
    uint celsius = 0;
    if (t->version != (1U << 24 | sizeof *t)) return ARGUMENT_VERSION_MISMATCH;
    int code = nvmlDeviceGetTemperature(h, (int)t->sensor, &celsius);
    if (!code) t->celsius = (int)celsius;
    return code;
}

int nvmlDeviceGetPowerUsage(handle *h, uint *milliwatts) {
    gpu g;
    int code = ask(h, "power", &g);
    if (!code) *milliwatts = 25000 + 325000 * load(g.index) / 100;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(handle *h, uint *milliwatts) {
    gpu g;
    int code = ask(h, "power_limit", &g);
    if (!code) *milliwatts = 350000;
    return code;
}

int nvmlDeviceGetComputeMode(handle *h, uint *mode) {
    gpu g;
    int code = ask(h, "compute_mode", &g);
    if (!code) *mode = (uint)answer(g.index, "compute_mode", 0);
    return code;
}

int nvmlDeviceGetMigMode(handle *h, uint *current, uint *pending) {
    gpu g;
    int code = ask(h, "mig", &g);
    if (!code) *current = *pending = (uint)answer(g.index, "mig", 0);
    return code;
}

int nvmlDeviceGetTotalEccErrors(handle *h, int kind, int counter, ull *count) {
    gpu g;
    (void)kind, (void)counter;
    int code = ask(h, "ecc", &g);
    if (!code) *count = 0;
    return code;
}

/* -- who uses it ------------------------------------------------------------------------------------------ */

static int listed(int index, process_info found[MAX_PROCESSES]) {
    claim all[MAX_PROCESSES];
    int count = says(index, "processes", "hidden") ? 0 : claims(index, all), distinct = 0;
    uint offset = says(index, "processes", "foreign") ? FOREIGN_PID_OFFSET : 0;
    int silent = says(index, "process_memory", "na");
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < distinct && found[at].pid != all[i].pid + offset) at++;
        if (at == distinct) found[distinct++] = (process_info){.pid = all[i].pid + offset};
        found[at].used = silent ? NOT_AVAILABLE : found[at].used + all[i].mib * MIB;
    }
    return distinct;
}

__attribute__((unused)) static int compute_processes(handle *h, uint *count, process_info *out) {
    gpu g;
    process_info found[MAX_PROCESSES];
    int code = ask(h, "processes", &g);
    if (code) return code;
    uint room = out ? *count : 0;
    *count = (uint)listed(g.index, found);
    memcpy(out ? out : found, found, (*count < room ? *count : room) * sizeof *found);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

__attribute__((unused)) static int graphics_processes(handle *h, uint *count) {
    gpu g;
    int code = ask(h, "processes", &g);
    if (!code) *count = 0;
    return code;
}

#ifndef NO_PROCESSES_V3
int nvmlDeviceGetComputeRunningProcesses_v3(handle *h, uint *count, process_info *out) {
    return compute_processes(h, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle *h, uint *count, process_info *out) {
    (void)out;
    return graphics_processes(h, count);
}
#endif

#ifndef NO_PROCESSES_V2
int nvmlDeviceGetComputeRunningProcesses_v2(handle *h, uint *count, process_info *out) {
    return compute_processes(h, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(handle *h, uint *count, process_info *out) {
    (void)out;
    return graphics_processes(h, count);
}
#endif

int nvmlDeviceGetProcessUtilization(handle *h, process_load *out, uint *count, ull last_seen) {
    gpu g;
    claim all[MAX_PROCESSES];
    (void)last_seen;
    int code = ask(h, "process_utilization", &g);
    if (code) return code;
    uint offset = says(g.index, "processes", "foreign") ? FOREIGN_PID_OFFSET : 0;
    uint held = (uint)claims(g.index, all), found = 0;
    for (uint i = 0; i < held; i++) /* who does nothing is not listed */
        if (all[i].load) all[found++] = all[i];
    if (!found) return NOT_FOUND;
    if (!out || *count < found) {
        *count = found;
        return INSUFFICIENT_SIZE;
    }
    for (uint i = 0; i < found; i++) out[i] = (process_load){.pid = all[i].pid + offset, .sm = all[i].load};
    *count = found;
    return SUCCESS;
}
