"""Devices of nodes and what pods were given of them (deviceshare spec 2, 3.1): what several plugins read.

* `kinds` the custom resource Device, labels and annotations; `resources` types of devices and what each has.
* `reading` reads a Device, `partitions` its partition table; an `inventory` is what decisions see of it.
* `allocation` is what a pod was given, `request` what it asks for.
* `columns` counts it per node and device, `nodes` keeps that in step with Devices and nodes.
"""
