"""VolumeBinding: chooses nodes where the pod's volumes are or can be, and has its claims bound before the pod is.

`claims` sorts the pod's claims; `placing` decides on every node at once, from the free volumes (`freevolumes`) and
the room for new ones (`capacity`); `assumed` remembers what was promised and not written yet; `writing` writes it
and waits for the binder; `plugin` ties them to the extension points.
"""
