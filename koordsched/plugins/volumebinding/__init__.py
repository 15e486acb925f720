"""VolumeBinding: chooses nodes where the pod's volumes are or can be, and has its claims bound before the pod is.

`claims` sorts the pod's claims by what has to be done for them; `placing` decides on every node at once, from the
`volumes` there are (the free ones in `freevolumes`) and the `capacity` for new ones. `assumedvolumes` assumes
volumes for a pod that was placed, which `assumed` remembers; `binder` writes them and waits until they are bound;
`plugin` ties all this to the extension points.
"""
