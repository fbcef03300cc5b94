/* What the fake library reads: a folder of text files, named by FAKE_NVML_DIR. */
#ifndef FOLDER_H
#define FOLDER_H

typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

#define MAX_GPUS 64
#define MAX_PROCESSES 256

typedef struct { int index; char uuid[96]; ull total, reserved; char name[96]; } gpu;
typedef struct { uint pid; ull mib; uint load; } claim;

/* The rest of the line `<who> <what> ...` of faults.conf; 0 if there is no such line. */
int fault(const char *who, const char *what, char rest[64]);
/* Whether the line `<index> <what> <word>` stands. */
int says(int index, const char *what, const char *word);
/* What a query answers in place of its usual value. */
int answer(int index, const char *what, int usual);
/* The version of the driver that is loaded; a library of another one cannot open it. */
int loaded_driver(void);
/* The code a call about no GPU in particular fails with. */
int session_fault(int opening);
/* The code a query about a GPU fails with; does not return while the GPU is blocked. */
int query_fault(int index, const char *what);

int gpus(gpu found[MAX_GPUS]);
int find(int index, gpu *wanted);
/* The claims of living processes on a GPU. */
int claims(int index, claim found[MAX_PROCESSES]);
ull used_mib(int index);
uint load(int index);

#endif
