"""Annotations and labels for the device plugins of vendors (deviceshare spec 3.9)."""

from __future__ import annotations

BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
VGPU_NODE = "hami.io/vgpu-node"
HAMI_CORE = "HAMi-core"

PREDICATE_TIME = "predicate-time"
HUAWEI_NPU_CORE = "huawei.com/npu-core"
HUAWEI_ASCEND_310P = "huawei.com/Ascend310P"
CAMBRICON_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"
CAMBRICON_PROFILE = "CAMBRICON_DSMLU_PROFILE"
CAMBRICON_LOCK = "cambricon.com/dsmlu.lock"
METAX_DEVICES = "metax-tech.com/gpu-devices-allocated"
HAMI_LOCK = "hami.io/mutex.lock"
