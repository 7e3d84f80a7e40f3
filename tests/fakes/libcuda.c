/* A libcuda of C with one GPU, for what ctypes must get right: sizes of arguments, pointers that
   need 64 bits, the file that was loaded. CUDA_FAKE_FAILS=cuInit:802 lets one call fail. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT ((void *)0x7f12345678abcdefULL)
#define POINTER 0x7fabcdef01234567ULL
#define INVALID 1

static char memory[1 << 20];
static int initialised, current;

static int planned(const char *call) {
    const char *plan = getenv("CUDA_FAKE_FAILS");
    size_t length = strlen(call);
    if (plan && !strncmp(plan, call, length) && plan[length] == ':') return atoi(plan + length + 1);
    return 0;
}
#define BEGIN { int code = planned(__func__); if (code) return code; }

int cuDriverGetVersion(int *version) { BEGIN *version = 12080; return 0; }
int cuInit(unsigned flags) {
    BEGIN
    /* else an MPS daemon would start a server for this process */
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (flags || !pipes || strcmp(pipes, "/dev/null")) return INVALID;
    initialised = 1;
    return 0;
}
int cuDeviceGet(int *device, int ordinal) {
    BEGIN
    /* the one GPU must be the one that was chosen by its name */
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    if (!chosen || strncmp(chosen, "GPU-", 4)) return 101;
    *device = ordinal;
    return initialised ? 0 : 3;
}
int cuDeviceGetUuid(char *uuid, int device) { BEGIN memset(uuid, 0xab, 16); return device; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
    BEGIN
    snprintf(text, length, "0000:00:06.0");
    return device;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { BEGIN *context = CONTEXT; return device; }
int cuCtxSetCurrent(void *context) { BEGIN current = context == CONTEXT; return current ? 0 : 201; }
int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
    BEGIN
    *pointer = POINTER;
    return current && size == sizeof memory ? 0 : INVALID;
}
int cuMemcpyHtoD_v2(uint64_t pointer, const void *host, size_t size) {
    BEGIN
    if (pointer != POINTER || size != sizeof memory) return INVALID;
    memcpy(memory, host, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *host, uint64_t pointer, size_t size) {
    BEGIN
    if (pointer != POINTER || size != sizeof memory) return INVALID;
    memcpy(host, memory, size);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { BEGIN current = 0; return device; }
int cuGetErrorName(int code, const char **name) {
    if (code != 802) return INVALID;
    *name = "CUDA_ERROR_SYSTEM_NOT_READY";
    return 0;
}
