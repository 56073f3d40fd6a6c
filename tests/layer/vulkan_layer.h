/* As much of Vulkan's interface, and of the loader's interface for layers, as faults.c touches.
 *
 * Structures that are only looked into end after the last member that matters.
 */
#ifndef VULKAN_LAYER_H
#define VULKAN_LAYER_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t VkResult;
typedef int32_t VkStructureType;
typedef uint32_t VkBool32;
typedef uint64_t VkDeviceSize;
typedef uint64_t VkFence;
typedef uint64_t VkDeviceMemory;
typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;
typedef struct VkDevice_T *VkDevice;
typedef struct VkQueue_T *VkQueue;

#define VK_SUCCESS 0
#define VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)
#define VK_ERROR_INITIALIZATION_FAILED (-3)
#define VK_ERROR_DEVICE_LOST (-4)

#define VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO 47
#define VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO 48
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES 50
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES 51
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES 52
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES 1000082000
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES 1000094000
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES 1000196000

/* What every structure of a pNext chain begins with. */
typedef struct Chained {
    VkStructureType sType;
    struct Chained *pNext;
} Chained;

typedef struct {
    uint32_t maxImageDimension[4];
    uint32_t maxImageArrayLayers;
    uint32_t maxTexelBufferElements;
    uint32_t maxUniformBufferRange;
    uint32_t maxStorageBufferRange;
    uint32_t maxPushConstantsSize;
    uint32_t maxMemoryAllocationCount;
    uint32_t maxSamplerAllocationCount;
    VkDeviceSize bufferImageGranularity;
    VkDeviceSize sparseAddressSpaceSize;
    uint32_t maxBoundDescriptorSets;
    uint32_t maxPerStageDescriptorSamplers;
    uint32_t maxPerStageDescriptorUniformBuffers;
    uint32_t maxPerStageDescriptorStorageBuffers;
    uint32_t maxPerStageDescriptors[3]; /* sampled images, storage images, input attachments */
    uint32_t maxPerStageResources;
    uint32_t maxDescriptorSet[8];
    uint32_t graphics[22]; /* vertices, tessellation, geometry, fragments */
    uint32_t maxComputeSharedMemorySize;
    uint32_t maxComputeWorkGroupCount[3];
    uint32_t maxComputeWorkGroupInvocations;
    uint32_t maxComputeWorkGroupSize[3];
} VkPhysicalDeviceLimits;

typedef struct {
    uint32_t apiVersion, driverVersion, vendorID, deviceID;
    int32_t deviceType;
    char deviceName[256];
    uint8_t pipelineCacheUUID[16];
    VkPhysicalDeviceLimits limits;
} VkPhysicalDeviceProperties;

typedef struct {
    VkStructureType sType;
    Chained *pNext;
    VkPhysicalDeviceProperties properties;
} VkPhysicalDeviceProperties2;

/* Vulkan12Properties begins alike. */
typedef struct {
    VkStructureType sType;
    Chained *pNext;
    int32_t driverID;
    char driverName[256];
    char driverInfo[256];
    uint8_t conformanceVersion[4];
} VkPhysicalDeviceDriverProperties;

typedef struct {
    VkStructureType sType;
    Chained *pNext;
    uint32_t subgroupSize;
    uint32_t supportedStages;
    uint32_t supportedOperations;
} VkPhysicalDeviceSubgroupProperties;

typedef struct {
    VkStructureType sType;
    Chained *pNext;
    uint8_t deviceUUID[16], driverUUID[16], deviceLUID[8];
    uint32_t deviceNodeMask;
    VkBool32 deviceLUIDValid;
    uint32_t subgroupSize;
    uint32_t subgroupSupportedStages;
    uint32_t subgroupSupportedOperations;
} VkPhysicalDeviceVulkan11Properties;

typedef struct {
    VkStructureType sType;
    Chained *pNext;
    VkBool32 shaderFloat16;
} VkPhysicalDeviceShaderFloat16Int8Features;

typedef struct {
    VkStructureType sType;
    Chained *pNext;
    VkBool32 before[7]; /* samplerMirrorClampToEdge to shaderSharedInt64Atomics */
    VkBool32 shaderFloat16;
} VkPhysicalDeviceVulkan12Features;

/* The loader's side. */
typedef void (*PFN_vkVoidFunction)(void);
typedef PFN_vkVoidFunction (*PFN_vkGetInstanceProcAddr)(VkInstance, const char *);
typedef PFN_vkVoidFunction (*PFN_vkGetDeviceProcAddr)(VkDevice, const char *);

typedef struct VkLayerInstanceLink {
    struct VkLayerInstanceLink *pNext;
    PFN_vkGetInstanceProcAddr pfnNextGetInstanceProcAddr;
    PFN_vkGetInstanceProcAddr pfnNextGetPhysicalDeviceProcAddr;
} VkLayerInstanceLink;

typedef struct VkLayerDeviceLink {
    struct VkLayerDeviceLink *pNext;
    PFN_vkGetInstanceProcAddr pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr pfnNextGetDeviceProcAddr;
} VkLayerDeviceLink;

/* VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo; function 0 says that link is set. */
typedef struct {
    VkStructureType sType;
    Chained *pNext;
    int32_t function;
    union {
        VkLayerInstanceLink *instance;
        VkLayerDeviceLink *device;
    } link;
} LayerCreateInfo;

typedef struct {
    int32_t sType;
    void *pNext;
    uint32_t loaderLayerInterfaceVersion;
    PFN_vkGetInstanceProcAddr pfnGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr pfnGetDeviceProcAddr;
    PFN_vkGetInstanceProcAddr pfnGetPhysicalDeviceProcAddr;
} VkNegotiateLayerInterface;

typedef VkResult (*PFN_vkCreateInstance)(const Chained *, const void *, VkInstance *);
typedef void (*PFN_vkDestroyInstance)(VkInstance, const void *);
typedef VkResult (*PFN_vkCreateDevice)(VkPhysicalDevice, const Chained *, const void *, VkDevice *);
typedef void (*PFN_vkDestroyDevice)(VkDevice, const void *);
typedef void (*PFN_vkGetPhysicalDeviceProperties)(VkPhysicalDevice, VkPhysicalDeviceProperties *);
typedef void (*PFN_vkGetPhysicalDevice2)(VkPhysicalDevice, Chained *);
typedef VkResult (*PFN_vkAllocateMemory)(VkDevice, const void *, const void *, VkDeviceMemory *);
typedef VkResult (*PFN_vkQueueSubmit)(VkQueue, uint32_t, const void *, VkFence);
typedef VkResult (*PFN_vkWaitForFences)(VkDevice, uint32_t, const VkFence *, VkBool32, uint64_t);
typedef VkResult (*PFN_vkGetFenceStatus)(VkDevice, VkFence);
typedef VkResult (*PFN_vkWaitSemaphores)(VkDevice, const void *, uint64_t);
typedef VkResult (*PFN_vkGetSemaphoreCounterValue)(VkDevice, uint64_t, uint64_t *);

#endif
