"""The rules by which Reservations are changed and pods refused at admission (reservation spec 2.5), without serving.

`colocation` reads ClusterColocationProfiles; `reservations` applies them to new Reservations; `pods` decides on pods.
All of it is pure: objects in, objects or an error out. Texts are those of upstream.
"""
