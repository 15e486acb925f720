"""The rules by which quotas and pods are defaulted and refused at admission (elasticquota spec 3.18), without serving.

`declared` reads objects; `defaults` fills new quotas in; `quotas` decides on quotas, with `topology` for what concerns
their neighbours; `pods` decides on pods and sends those of a tree to its nodes; `evaluation` counts pods against max.
All of it is pure: objects in, objects or `Refused` out. Texts are those of upstream.
"""
