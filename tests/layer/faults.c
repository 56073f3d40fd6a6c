/* A Vulkan layer that gives a working driver the faults of others. It is for tests.
 *
 * FAULTS, a list of words in the environment, says what the driver lacks: "conformance" (it
 * reports version 0.0.0.0), "limits" (tiny ones), "subgroups", "f16".
 *
 * The exported variables below make calls fail: set them through the environment, in upper case,
 * or in the loaded layer at any time.
 */
#include "vulkan_layer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* How many allocations succeed before the next ones fail, and how many of these. -1: no end. */
EXPORT int fault_allocate_after = -1;
EXPORT int fault_allocate_times = 1;
/* How many submits succeed before a device is lost, in the next look at how it gets on but one: the
 * library looks once within a submit. A device is lost for good; others and later ones are not. */
EXPORT int fault_hang_after = -1;
/* How many succeed before the next one itself says that the device is lost. */
EXPORT int fault_submit_after = -1;
/* How many allocations succeed before one finds it lost. */
EXPORT int fault_lose_after = -1;
/* What was called so far. */
EXPORT int allocations = 0;
EXPORT int submits = 0;
EXPORT int devices_open = 0;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void __attribute__((constructor)) read_environment(void) {
    struct { const char *name; int *value; } variables[] = {
        {"FAULT_ALLOCATE_AFTER", &fault_allocate_after},
        {"FAULT_ALLOCATE_TIMES", &fault_allocate_times},
        {"FAULT_HANG_AFTER", &fault_hang_after},
        {"FAULT_SUBMIT_AFTER", &fault_submit_after},
        {"FAULT_LOSE_AFTER", &fault_lose_after},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i].name);
        if (text) *variables[i].value = atoi(text);
    }
}

static int faulty(const char *word) {
    const char *list = getenv("FAULTS");
    return list && strstr(list, word);
}

/* Counts down to a fault; true when it is due. The caller holds the lock. */
static int due(int *after, int *times) {
    if (*after < 0) return 0;
    if (*after > 0) {
        (*after)--;
        return 0;
    }
    if (*times > 0 && --*times == 0) {
        *after = -1;
        *times = 1;
    }
    return 1;
}

/* Instances and devices, known by the loader's table that their first word points to: physical
 * devices share it with their instance, queues with their device. */

typedef struct {
    void *key;
    VkInstance handle;
    PFN_vkGetInstanceProcAddr next;
    PFN_vkDestroyInstance destroy;
    PFN_vkGetPhysicalDeviceProperties properties;
    PFN_vkGetPhysicalDevice2 properties2, features2;
} Instance;

typedef struct {
    void *key;
    int lost;
    int looks; /* that are left before it is lost, or -1 */
    PFN_vkGetDeviceProcAddr next;
    PFN_vkAllocateMemory allocate;
    PFN_vkQueueSubmit submit, submit2;
    PFN_vkWaitForFences wait_fences;
    PFN_vkGetFenceStatus fence_status;
    PFN_vkWaitSemaphores wait_semaphores;
    PFN_vkGetSemaphoreCounterValue counter;
} Device;

#define MOST 64
static Instance instances[MOST];
static Device devices[MOST];

static void *key_of(const void *handle) { return *(void *const *)handle; }

static Instance *instance_of(void *key) {
    for (int i = 0; i < MOST; i++)
        if (instances[i].key == key) return &instances[i];
    return NULL;
}

static Device *device_of(void *key) {
    for (int i = 0; i < MOST; i++)
        if (devices[i].key == key) return &devices[i];
    return NULL;
}

static LayerCreateInfo *link_in(const Chained *info, VkStructureType type) {
    for (Chained *item = info->pNext; item; item = item->pNext) {
        LayerCreateInfo *found = (LayerCreateInfo *)item;
        if (item->sType == type && found->function == 0) return found;
    }
    return NULL;
}

/* What a driver says of itself ----------------------------------------------------------------*/

static void shrink(VkPhysicalDeviceLimits *limits) {
    if (!faulty("limits")) return;
    /* The least that Vulkan allows, but for the buffers' size, which is smaller still. */
    limits->maxStorageBufferRange = 1 << 20;
    limits->maxPerStageDescriptorStorageBuffers = 4;
    limits->maxComputeSharedMemorySize = 16384;
    limits->maxComputeWorkGroupInvocations = 128;
    limits->maxComputeWorkGroupSize[0] = 128;
    limits->maxComputeWorkGroupSize[1] = 128;
    limits->maxComputeWorkGroupSize[2] = 64;
}

static void get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties *properties) {
    instance_of(key_of(device))->properties(device, properties);
    shrink(&properties->limits);
}

static void get_properties2(VkPhysicalDevice device, Chained *properties) {
    instance_of(key_of(device))->properties2(device, properties);
    shrink(&((VkPhysicalDeviceProperties2 *)properties)->properties.limits);
    for (Chained *item = properties->pNext; item; item = item->pNext) {
        switch (item->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES:
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES:
            if (faulty("conformance"))
                memset(((VkPhysicalDeviceDriverProperties *)item)->conformanceVersion, 0, 4);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES:
            if (faulty("subgroups"))
                ((VkPhysicalDeviceSubgroupProperties *)item)->supportedOperations = 0;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES:
            if (faulty("subgroups"))
                ((VkPhysicalDeviceVulkan11Properties *)item)->subgroupSupportedOperations = 0;
            break;
        }
    }
}

static void get_features2(VkPhysicalDevice device, Chained *features) {
    instance_of(key_of(device))->features2(device, features);
    if (!faulty("f16")) return;
    for (Chained *item = features->pNext; item; item = item->pNext) {
        switch (item->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES:
            ((VkPhysicalDeviceShaderFloat16Int8Features *)item)->shaderFloat16 = 0;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES:
            ((VkPhysicalDeviceVulkan12Features *)item)->shaderFloat16 = 0;
            break;
        }
    }
}

/* Calls that fail -------------------------------------------------------------------------------*/

static int for_good = -1;

/* Whether the device is lost, or is now that a countdown has ended. */
static int lost(Device *device, int *after) {
    pthread_mutex_lock(&lock);
    if (!device->lost && due(after, &for_good)) {
        device->lost = 1;
        *after = -1;
    }
    int answer = device->lost;
    pthread_mutex_unlock(&lock);
    return answer;
}

static VkResult allocate(VkDevice device, const void *info, const void *allocator,
                         VkDeviceMemory *memory) {
    Device *known = device_of(key_of(device));
    if (lost(known, &fault_lose_after)) return VK_ERROR_DEVICE_LOST;
    pthread_mutex_lock(&lock);
    allocations++;
    int fails = due(&fault_allocate_after, &fault_allocate_times);
    pthread_mutex_unlock(&lock);
    return fails ? VK_ERROR_OUT_OF_DEVICE_MEMORY : known->allocate(device, info, allocator, memory);
}

static int submit_is_lost(Device *device) {
    int answer = lost(device, &fault_submit_after);
    pthread_mutex_lock(&lock);
    submits++;
    if (!answer && due(&fault_hang_after, &for_good)) {
        device->looks = 1;
        fault_hang_after = -1;
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

static VkResult submit(VkQueue queue, uint32_t count, const void *infos, VkFence fence) {
    Device *device = device_of(key_of(queue));
    if (submit_is_lost(device)) return VK_ERROR_DEVICE_LOST;
    return device->submit(queue, count, infos, fence);
}

static VkResult submit2(VkQueue queue, uint32_t count, const void *infos, VkFence fence) {
    Device *device = device_of(key_of(queue));
    if (submit_is_lost(device)) return VK_ERROR_DEVICE_LOST;
    return device->submit2(queue, count, infos, fence);
}

static VkResult wait_fences(VkDevice device, uint32_t count, const VkFence *fences, VkBool32 all,
                            uint64_t timeout) {
    Device *known = device_of(key_of(device));
    if (lost(known, &known->looks)) return VK_ERROR_DEVICE_LOST;
    return known->wait_fences(device, count, fences, all, timeout);
}

static VkResult fence_status(VkDevice device, VkFence fence) {
    Device *known = device_of(key_of(device));
    if (lost(known, &known->looks)) return VK_ERROR_DEVICE_LOST;
    return known->fence_status(device, fence);
}

static VkResult wait_semaphores(VkDevice device, const void *info, uint64_t timeout) {
    Device *known = device_of(key_of(device));
    if (lost(known, &known->looks)) return VK_ERROR_DEVICE_LOST;
    return known->wait_semaphores(device, info, timeout);
}

static VkResult counter(VkDevice device, uint64_t semaphore, uint64_t *value) {
    Device *known = device_of(key_of(device));
    if (lost(known, &known->looks)) return VK_ERROR_DEVICE_LOST;
    return known->counter(device, semaphore, value);
}

/* Creation and destruction ----------------------------------------------------------------------*/

/* A function by its core name, or by the one it had as an extension. */
#define LOOK_UP(next, owner, name) \
    ((void *)(next(owner, name) ? next(owner, name) : next(owner, name "KHR")))

static VkResult create_instance(const Chained *info, const void *allocator, VkInstance *instance) {
    LayerCreateInfo *link = link_in(info, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr next = link->link.instance->pfnNextGetInstanceProcAddr;
    link->link.instance = link->link.instance->pNext;
    VkResult result = ((PFN_vkCreateInstance)next(NULL, "vkCreateInstance"))(info, allocator, instance);
    if (result != VK_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    Instance *known = instance_of(NULL);
    if (!known) abort();
    known->next = next;
    known->handle = *instance;
    /* Now: later look-ups would find this layer's own. */
    known->destroy = LOOK_UP(next, *instance, "vkDestroyInstance");
    known->properties = LOOK_UP(next, *instance, "vkGetPhysicalDeviceProperties");
    known->properties2 = LOOK_UP(next, *instance, "vkGetPhysicalDeviceProperties2");
    known->features2 = LOOK_UP(next, *instance, "vkGetPhysicalDeviceFeatures2");
    known->key = key_of(*instance);
    pthread_mutex_unlock(&lock);
    return result;
}

static void destroy_instance(VkInstance instance, const void *allocator) {
    Instance *known = instance_of(key_of(instance));
    PFN_vkDestroyInstance next = known->destroy;
    known->key = NULL;
    next(instance, allocator);
}

static VkResult create_device(VkPhysicalDevice physical, const Chained *info, const void *allocator,
                              VkDevice *device) {
    LayerCreateInfo *link = link_in(info, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr instance_next = link->link.device->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr next = link->link.device->pfnNextGetDeviceProcAddr;
    link->link.device = link->link.device->pNext;
    VkInstance instance = instance_of(key_of(physical))->handle;
    VkResult result = ((PFN_vkCreateDevice)instance_next(instance, "vkCreateDevice"))(
        physical, info, allocator, device);
    if (result != VK_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    Device *known = device_of(NULL);
    if (!known) abort();
    known->next = next;
    known->lost = 0;
    known->looks = -1;
    known->allocate = LOOK_UP(next, *device, "vkAllocateMemory");
    known->submit = LOOK_UP(next, *device, "vkQueueSubmit");
    known->submit2 = LOOK_UP(next, *device, "vkQueueSubmit2");
    known->wait_fences = LOOK_UP(next, *device, "vkWaitForFences");
    known->fence_status = LOOK_UP(next, *device, "vkGetFenceStatus");
    known->wait_semaphores = LOOK_UP(next, *device, "vkWaitSemaphores");
    known->counter = LOOK_UP(next, *device, "vkGetSemaphoreCounterValue");
    known->key = key_of(*device);
    devices_open++;
    pthread_mutex_unlock(&lock);
    return result;
}

static void destroy_device(VkDevice device, const void *allocator) {
    pthread_mutex_lock(&lock);
    Device *known = device_of(key_of(device));
    PFN_vkDestroyDevice next = (PFN_vkDestroyDevice)known->next(device, "vkDestroyDevice");
    known->key = NULL;
    devices_open--;
    pthread_mutex_unlock(&lock);
    next(device, allocator);
}

/* What the loader asks for ----------------------------------------------------------------------*/

static PFN_vkVoidFunction get_instance_proc(VkInstance instance, const char *name);
static PFN_vkVoidFunction get_device_proc(VkDevice device, const char *name);

#define FUNCTION(function) ((PFN_vkVoidFunction)(function))

static const struct { const char *name; PFN_vkVoidFunction function; } of_devices[] = {
    {"vkGetDeviceProcAddr", FUNCTION(get_device_proc)},
    {"vkDestroyDevice", FUNCTION(destroy_device)},
    {"vkAllocateMemory", FUNCTION(allocate)},
    {"vkQueueSubmit", FUNCTION(submit)},
    {"vkQueueSubmit2", FUNCTION(submit2)},
    {"vkQueueSubmit2KHR", FUNCTION(submit2)},
    {"vkWaitForFences", FUNCTION(wait_fences)},
    {"vkGetFenceStatus", FUNCTION(fence_status)},
    {"vkWaitSemaphores", FUNCTION(wait_semaphores)},
    {"vkWaitSemaphoresKHR", FUNCTION(wait_semaphores)},
    {"vkGetSemaphoreCounterValue", FUNCTION(counter)},
    {"vkGetSemaphoreCounterValueKHR", FUNCTION(counter)},
}, of_instances[] = {
    {"vkGetInstanceProcAddr", FUNCTION(get_instance_proc)},
    {"vkCreateInstance", FUNCTION(create_instance)},
    {"vkDestroyInstance", FUNCTION(destroy_instance)},
    {"vkCreateDevice", FUNCTION(create_device)},
    {"vkGetPhysicalDeviceProperties", FUNCTION(get_properties)},
    {"vkGetPhysicalDeviceProperties2", FUNCTION(get_properties2)},
    {"vkGetPhysicalDeviceProperties2KHR", FUNCTION(get_properties2)},
    {"vkGetPhysicalDeviceFeatures2", FUNCTION(get_features2)},
    {"vkGetPhysicalDeviceFeatures2KHR", FUNCTION(get_features2)},
};

static PFN_vkVoidFunction get_device_proc(VkDevice device, const char *name) {
    Device *known = device_of(key_of(device));
    PFN_vkVoidFunction below = known->next(device, name);
    for (size_t i = 0; below && i < sizeof of_devices / sizeof *of_devices; i++)
        if (strcmp(of_devices[i].name, name) == 0) return of_devices[i].function;
    return below;
}

static PFN_vkVoidFunction get_instance_proc(VkInstance instance, const char *name) {
    for (size_t i = 0; i < sizeof of_instances / sizeof *of_instances; i++)
        if (strcmp(of_instances[i].name, name) == 0) return of_instances[i].function;
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return FUNCTION(get_device_proc);
    return instance ? instance_of(key_of(instance))->next(instance, name) : NULL;
}

EXPORT VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface) {
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = get_instance_proc;
    interface->pfnGetDeviceProcAddr = get_device_proc;
    interface->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
