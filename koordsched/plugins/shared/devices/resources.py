"""Types of devices, and the resources of each that are counted device by device (deviceshare spec 2.3)."""

from __future__ import annotations

from types import MappingProxyType

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
TYPES = (GPU, RDMA, FPGA)
"""In the order in which messages name them."""

GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
NPU_CORE = "huawei.com/npu-core"
NPU_CPU = "huawei.com/npu-cpu"
NPU_DVPP = "huawei.com/npu-dvpp"
RDMA_RESOURCE = "koordinator.sh/rdma"
FPGA_RESOURCE = "koordinator.sh/fpga"

NAMES = MappingProxyType(
    {
        GPU: (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, NPU_CPU, NPU_DVPP),
        RDMA: (RDMA_RESOURCE,),
        FPGA: (FPGA_RESOURCE,),
    }
)
"""What devices of a type have; amounts are in this order wherever they come without names."""

CORE, MEMORY, RATIO = (NAMES[GPU].index(name) for name in (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO))

INDEX = MappingProxyType({name: at for names in NAMES.values() for at, name in enumerate(names)})
"""The position of a resource among those of its type."""

ABSENT = -1
"""Instead of the amount of a resource that a device does not list."""

MAX_MINORS = 128
"""Devices of one type that a node may have; a minor is less than this."""

MOST_OF_A_POD = 1 << 47
"""The most of a resource of a device that counts for a pod: the sum over all pods of a node stays within 64 bits."""

DEPRECATED = MappingProxyType(
    {
        f"kubernetes.io/{name}": f"koordinator.sh/{name}"
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
    }
)
"""Old name -> the name that it is read as, unless that is there, too."""
